//! The operating system's figures of this process. Only Linux is supported; elsewhere there are no figures.

/// The usual figures of a process.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) open_files: u64,
    pub(super) max_files: Option<u64>,
    pub(super) threads: u64,
    /// Seconds since the Unix epoch.
    pub(super) started: f64,
}

/// Reads the figures; `None` where the system has none.
pub(super) fn read_process() -> Option<Process> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    // The listing itself uses one descriptor.
    let open_files = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let mut process = parse(&stat, &status, &system, &limits)?;
    process.open_files = open_files.saturating_sub(1);
    Some(process)
}

/// The kernel reports times to programs in hundredths of a second on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

fn parse(stat: &str, status: &str, system: &str, limits: &str) -> Option<Process> {
    // The program's name is in parentheses and may hold any character; numbers follow the last parenthesis.
    let (_, numbers) = stat.rsplit_once(')')?;
    let numbers: Vec<&str> = numbers.split_ascii_whitespace().collect();
    // proc(5) counts from 1, and the first two fields are cut off: its field n is at n - 3.
    let ticks = |field: usize| numbers.get(field - 3)?.parse::<f64>().ok();
    let booted: f64 = field(system, "btime ")?.parse().ok()?;
    Some(Process {
        cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
        resident_bytes: kib(status, "VmRSS:").unwrap_or(0),
        virtual_bytes: kib(status, "VmSize:").unwrap_or(0),
        open_files: 0,
        max_files: field(limits, "Max open files").and_then(|most| most.parse().ok()),
        threads: ticks(20)? as u64,
        started: booted + ticks(22)? / TICKS_PER_SECOND,
    })
}

/// The first word after `name` at the start of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_ascii_whitespace().next())
}

fn kib(text: &str, name: &str) -> Option<u64> {
    Some(field(text, name)?.parse::<u64>().ok()?.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_parenthesis_shifts_nothing() {
        let stat = "7 (to) 9 (ll) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 3 0 1200 9 9";
        let status = "Name:\ttoll\nVmSize:\t    2000 kB\nVmRSS:\t    1000 kB\n";
        let limits = "Max open files            1024                 524288               files\n";
        let process = parse(stat, status, "cpu 1 2\nbtime 1700000000\n", limits).unwrap();
        assert_eq!(
            process,
            Process {
                cpu_seconds: 2.0,
                resident_bytes: 1_024_000,
                virtual_bytes: 2_048_000,
                open_files: 0,
                max_files: Some(1024),
                threads: 3,
                started: 1_700_000_012.0,
            }
        );
        assert_eq!(parse("", "", "", ""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_figures() {
        let process = read_process().unwrap();
        assert!(process.resident_bytes > 0);
        assert!(process.open_files > 0);
        assert!(process.started > 1_600_000_000.0);
    }
}
