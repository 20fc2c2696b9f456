//! The log as a whole: no worker waits, no line is lost without being counted.

use super::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;

/// An output that can be read back.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let line = |line| serde_json::from_str(line).unwrap();
        text.lines().map(line).collect()
    }
}

/// An output that fails after some bytes.
struct Broken {
    room: usize,
    kind: io::ErrorKind,
}

impl Write for Broken {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(self.kind.into());
        }
        let written = bytes.len().min(self.room);
        self.room -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const MOMENT: Duration = Duration::from_secs(10);

fn json_log(sink: impl Write + Send + 'static) -> (AccessLog, Arc<Metrics>) {
    let metrics = Metrics::new();
    let log = AccessLog::start(AccessFormat::Json, false, sink, &metrics).unwrap();
    (log, metrics)
}

fn pipe_log() -> (AccessLog, Arc<Metrics>, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let (log, metrics) = json_log(writer);
    (log, metrics, reader)
}

fn refused(last: u8) -> AccessRecord<'static> {
    let mut record = AccessRecord::sample();
    record.client = Some(IpAddr::from([203, 0, 113, last]));
    (record.status, record.reason) = (429, Reason::LimitRefused);
    record
}

#[test]
fn every_line_is_there_after_shutdown() {
    let sink = Shared::default();
    let (log, metrics) = json_log(sink.clone());
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let log = log.clone();
            std::thread::spawn(move || {
                let writer = log.worker();
                for _ in 0..2_500 {
                    writer.record(&AccessRecord::sample());
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(log.shutdown(MOMENT), 0);
    assert_eq!(
        sink.lines().len() as u64 + metrics.access_lines_lost(),
        10_000
    );
    assert_eq!(metrics.access_lines_lost(), 0);
}

#[test]
fn a_pipe_that_nobody_reads_keeps_nobody_waiting() {
    let (log, metrics, reader) = pipe_log();
    let writer = log.worker();
    let began = Instant::now();
    // A blocking call here would never return.
    while metrics.access_lines_lost() < 1000 {
        writer.record(&AccessRecord::sample());
        assert!(began.elapsed() < MOMENT * 6, "nothing is dropped");
    }
    let dropped = metrics.access_lines_lost();
    drop(writer);
    let began = Instant::now();
    let lost = log.shutdown(Duration::from_millis(100));
    assert!(began.elapsed() < MOMENT);
    assert!(lost > 0 && metrics.access_lines_lost() == dropped + lost);
    drop(reader);
}

#[test]
fn a_reader_that_is_only_slow_gets_whole_lines() {
    let (log, metrics, mut reader) = pipe_log();
    let writer = log.worker();
    for _ in 0..50_000 {
        writer.record(&AccessRecord::sample());
    }
    drop(writer);
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(log.shutdown(MOMENT), 0);
    drop(log);
    let text = reading.join().unwrap();
    let lines = text.lines().inspect(|line| {
        serde_json::from_str::<Value>(line).unwrap();
    });
    assert_eq!(lines.count() as u64 + metrics.access_lines_lost(), 50_000);
}

#[test]
fn a_broken_output_is_counted_and_survived() {
    for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull] {
        let (log, metrics) = json_log(Broken { room: 100, kind });
        let writer = log.worker();
        for _ in 0..10 {
            writer.record(&AccessRecord::sample());
            let log = writer.0.as_ref().unwrap();
            log.buffer.borrow_mut().tick(Instant::now());
        }
        drop(writer);
        assert_eq!(log.shutdown(MOMENT), 0);
        assert_eq!(metrics.access_lines_lost(), 10);
    }
}

#[test]
fn a_lone_line_comes_out_at_once() {
    let (log, _metrics, reader) = pipe_log();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    let (sender, line) = std::sync::mpsc::channel();
    let _reading = std::thread::spawn(move || {
        for line in BufReader::new(reader).lines() {
            let _ = sender.send((line.unwrap(), Instant::now()));
        }
    });
    // A busy machine may be late sometimes, so that the fastest of several runs counts.
    let began = runtime.block_on(async {
        let writer = log.worker();
        tokio::task::spawn_local(writer.flushing());
        let mut began = Vec::new();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            began.push(Instant::now());
            writer.record(&AccessRecord::sample());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        began
    });
    let took = began.into_iter().map(|began| {
        let (text, arrived) = line.recv_timeout(MOMENT).unwrap();
        assert!(text.starts_with(r#"{"ts":""#));
        arrived.duration_since(began)
    });
    assert!(took.min().unwrap() < Duration::from_millis(50));
}

#[test]
fn a_flood_is_summed_up_and_others_are_not() {
    let sink = Shared::default();
    let (log, metrics) = json_log(sink.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let writer = log.worker();
        tokio::task::spawn_local(writer.flushing());
        for _ in 0..5_000 {
            writer.record(&refused(1));
        }
        for _ in 0..300 {
            writer.record(&AccessRecord::sample());
        }
        writer.record(&refused(2));
        tokio::time::sleep(Duration::from_millis(1_300)).await;
    });
    let lines = sink.lines();
    let is_flooder = |line: &&Value| line["client"] == "203.0.113.1";
    let flooder: Vec<_> = lines.iter().filter(is_flooder).collect();
    let repeated: u64 = flooder
        .iter()
        .filter_map(|line| line["repeated"].as_u64())
        .sum();
    // The second may end in between on a busy machine; the sum is correct nevertheless.
    assert!(flooder.len() < 500, "{}", flooder.len());
    assert_eq!(flooder.len() as u64 + repeated, 5_000);
    assert_eq!(lines.len() - flooder.len(), 301);
    drop(runtime);
    assert_eq!(log.shutdown(MOMENT), 0);
    let text = metrics.render(crate::telemetry::metrics::TextFormat::Prometheus);
    assert!(text.contains(&format!(
        "tollgate_access_log_lines_summarised_total {repeated}\n"
    )));
}

#[test]
fn what_the_flood_rule_holds_back_is_written_at_the_end() {
    for (format, ending) in [
        (AccessFormat::Json, r#","repeated":99}"#),
        (AccessFormat::Short, " (and 99 more like this)"),
        (AccessFormat::Combined, " repeated=99"),
    ] {
        let sink = Shared::default();
        let log = AccessLog::start(format, false, sink.clone(), &Metrics::new()).unwrap();
        let writer = log.worker();
        let now = Instant::now();
        for _ in 0..200 {
            let log = writer.0.as_ref().unwrap();
            log.buffer.borrow_mut().record(&refused(1), || now);
        }
        drop(writer);
        assert_eq!(log.shutdown(MOMENT), 0);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 101);
        assert!(text.lines().last().unwrap().ends_with(ending), "{text}");
    }
}

#[test]
fn off_is_off() {
    let log = AccessLog::start(AccessFormat::Off, false, io::sink(), &Metrics::new()).unwrap();
    let writer = log.worker();
    assert!(!writer.is_on());
    writer.record(&AccessRecord::sample());
    assert_eq!(log.shutdown(MOMENT), 0);
}
