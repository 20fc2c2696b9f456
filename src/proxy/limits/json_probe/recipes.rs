//! The answers of five language models, plain and streamed, cut at every byte: each costs what docs/token-budgets.md
//! says.
//!
//! The bodies have the form, and the numbers, of the references and libraries that are named beside them.

use crate::key::{JsonCost, WeighedMember, Weight};
use crate::proxy::limits::response_cost::BodyFormat;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use std::sync::Arc;

const JSON: &str = "application/json; charset=utf-8";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const LINES: &str = "application/x-ndjson";

/// The weights of the page, by the name of the limit.
fn recipe(name: &str) -> Arc<JsonCost> {
    let page = include_str!("../../../../docs/token-budgets.md");
    let file = page.split("```toml\n").nth(1).unwrap();
    let file: toml::Table = toml::from_str(file.split("```").next().unwrap()).unwrap();
    let members = match &file["limits"][name]["cost"]["response_json"] {
        toml::Value::Table(table) => {
            let weight = |value: &toml::Value| Weight::read(&value.to_string()).unwrap();
            let members = table
                .iter()
                .map(|(name, value)| member(name, weight(value)));
            members.collect()
        }
        toml::Value::Array(list) => {
            let names = list.iter().map(|one| one.as_str().unwrap());
            names.map(|name| member(name, Weight::ONE)).collect()
        }
        other => panic!("{other}"),
    };
    Arc::new(JsonCost::new(members).unwrap())
}

fn member(text: &str, weight: Weight) -> WeighedMember {
    let places = text.split('|');
    WeighedMember {
        places: places
            .map(|place| place.split('.').map(Box::from).collect())
            .collect(),
        weight,
    }
}

/// The cost of a body that comes in two pieces, and in pieces of one byte.
fn costs(name: &str, kind: &'static str, body: &str, units: u64) {
    let cost = recipe(name);
    let mut fields = HeaderMap::new();
    fields.insert(CONTENT_TYPE, kind.parse().unwrap());
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut format = BodyFormat::of(&cost, &fields).unwrap();
        for piece in pieces {
            match &mut format {
                BodyFormat::Json(members) => members.read(piece),
                BodyFormat::EventProbe(events) => events.read(piece),
            }
        }
        match format {
            BodyFormat::Json(members) => members.units(),
            BodyFormat::EventProbe(events) => events.members().units(),
        }
    };
    let body = body.as_bytes();
    for cut in 0..=body.len() {
        let (one, other) = body.split_at(cut);
        assert_eq!(
            read(&mut [one, other].into_iter()),
            Some(units),
            "{name} at {cut}"
        );
    }
    assert_eq!(read(&mut body.chunks(1)), Some(units), "{name} by bytes");
}

/// OpenAI, API reference, "Create chat completion"; its guide "Prompt caching"; the stream as in the tests of
/// run-llama/llama_index (`test_openai.py`).
#[test]
fn chat_completions() {
    costs(
        "openai-chat",
        JSON,
        r#"{"id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion","model":"gpt-5.4",
        "choices":[{"index":0,"message":{"role":"assistant","content":"Hello! \"usage\": {}","refusal":null},"finish_reason":"stop"}],
        "usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,
        "prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default"}"#,
        19 + 4 * 10,
    );
    // 2006 - 0.9 * 1920 + 4 * 300
    costs(
        "openai-chat",
        JSON,
        r#"{"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,"prompt_tokens_details":{"cached_tokens":1920},"completion_tokens_details":{"reasoning_tokens":0}}}"#,
        1478,
    );
    costs(
        "openai-chat",
        EVENTS,
        "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"Hi\"},\"finish_reason\":null}],\"usage\":null}\n\n\
         data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n\
         data: {\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":14,\"completion_tokens\":3,\"total_tokens\":17}}\n\n\
         data: [DONE]\n\n",
        14 + 4 * 3,
    );
}

/// The answer as in the tests of platformatic/ai-warp (`test/mocks/openai.js`); the stream of OpenAI's API reference,
/// "Streaming events".
#[test]
fn responses() {
    costs(
        "openai-responses",
        JSON,
        r#"{"id":"resp_685a","object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","annotations":[],"text":"Of course!"}],"role":"assistant"}],"usage":{"input_tokens":16,"input_tokens_details":{"cached_tokens":0},"output_tokens":50,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":66},"metadata":{}}"#,
        16 + 4 * 50,
    );
    costs(
        "openai-responses",
        EVENTS,
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_67c9\",\"status\":\"in_progress\",\"usage\":null}}\n\n\
         event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_67c9\",\"status\":\"completed\",\"usage\":{\"input_tokens\":37,\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":48}}}\n\n",
        37 + 4 * 11,
    );
    // 4096 - 0.9 * 2048 + 4 * 1, with the ends of lines that some servers write.
    costs(
        "openai-responses",
        EVENTS,
        "event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":4096,\"output_tokens\":1,\"input_tokens_details\":{\"cached_tokens\":2048}}}}\r\n\r\n",
        2257,
    );
}

/// Anthropic, API reference, "Create a message"; the streams as in the tests of anthropics/anthropic-sdk-python
/// (`tests/lib/streaming/fixtures`: `basic_response.txt`, `message_delta_fields_response.txt`).
#[test]
fn messages() {
    // 2095 + 1.25 * 2051 + 0.1 * 2051 + 5 * 503
    costs(
        "anthropic",
        JSON,
        r#"{"id":"msg_013Z","type":"message","role":"assistant","content":[{"type":"text","text":"Hi!"}],"stop_reason":"end_turn","usage":{"input_tokens":2095,"cache_creation_input_tokens":2051,"cache_read_input_tokens":2051,"output_tokens":503,"service_tier":"standard"}}"#,
        7379,
    );
    costs(
        "anthropic",
        EVENTS,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_4QpJ\",\"content\":[],\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n\
         event: ping\ndata: {\"type\": \"ping\"}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":6}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}",
        11 + 5 * 6,
    );
    // The second event repeats the numbers of the first: 40 + 1.25 * 12 + 0.1 * 7 + 5 * 8
    costs(
        "anthropic",
        EVENTS,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":10,\"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":40,\"cache_creation_input_tokens\":12,\"cache_read_input_tokens\":7,\"output_tokens\":8,\"output_tokens_details\":{\"thinking_tokens\":3}}}\n\n",
        96,
    );
}

/// Google, Gemini API reference, `GenerateContentResponse.UsageMetadata`; the first answer as in Firebase's page
/// "Server prompt templates".
#[test]
fn generated_content() {
    costs(
        "gemini",
        JSON,
        r#"{"candidates":[{"content":{"parts":[{"text":"Thank you"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":34,"candidatesTokenCount":418,"totalTokenCount":890,"promptTokensDetails":[{"modality":"TEXT","tokenCount":34}],"thoughtsTokenCount":438},"modelVersion":"gemini-3-flash-preview"}"#,
        34 + 4 * 418 + 4 * 438,
    );
    // 5000 - 0.75 * 4200 + 4 * 30 + 4 * 12
    let last = r#"{"candidates":[],"usageMetadata":{"promptTokenCount":5000,"candidatesTokenCount":30,"totalTokenCount":5030,"cachedContentTokenCount":4200,"thoughtsTokenCount":12}}"#;
    let first = r#"{"candidates":[{"content":{"parts":[{"text":"A"}]}}],"usageMetadata":{"promptTokenCount":5000,"totalTokenCount":5000,"cachedContentTokenCount":4200}}"#;
    costs(
        "gemini",
        EVENTS,
        &format!("data: {first}\r\n\r\ndata: {last}\r\n\r\n"),
        2018,
    );
    costs("gemini", JSON, &format!("[{first}\n,\r\n{last}\n]\n"), 2018);
}

/// Ollama, `docs/api.md` of ollama/ollama, "Generate a completion" and "Generate a chat completion".
#[test]
fn lines_of_ollama() {
    costs(
        "ollama",
        JSON,
        r#"{"model":"llama3.2","response":"","done":true,"context":[1,2,3],"total_duration":5043500667,"load_duration":5025959,"prompt_eval_count":26,"prompt_eval_duration":325953000,"eval_count":290,"eval_duration":4709213000}"#,
        26 + 290,
    );
    costs(
        "ollama",
        LINES,
        "{\"model\":\"llama3.2\",\"message\":{\"role\":\"assistant\",\"content\":\"The\"},\"done\":false}\n\
         {\"model\":\"llama3.2\",\"done\":true,\"total_duration\":4883583458,\"prompt_eval_count\":26,\"eval_count\":282,\"eval_duration\":4535599000}\n",
        26 + 282,
    );
}
