//! Attacks by the form of requests: framing, headers, methods, paths, and keys in other places.

use serde_json::json;

use crate::rest::attacks::raw;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, RestWorld};

const TASKS: &str = "/agents/remote/tasks";

/// Returns the statuses of all responses on a connection.
fn statuses(received: &str) -> Vec<&str> {
    received.split("HTTP/1.1 ").skip(1).filter_map(|response| response.split(' ').next()).collect()
}

#[tokio::test]
async fn a_request_inside_another_one_has_no_key() {
    let world = RestWorld::with_remote("").await;
    let host = world.address;
    let inner = format!("GET /principals/alice/data HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    let head = format!(
        "POST {TASKS} HTTP/1.1\r\nhost: {host}\r\nx-api-key: {ALICE}\r\ncontent-type: application/json\r\n"
    );
    // One length for a program in front of the server, and another one for the server.
    for framing in [
        format!("content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 5 + inner.len()),
        format!("transfer-encoding: chunked\r\ncontent-length: {}\r\n\r\n0\r\n\r\n", 5 + inner.len()),
        "content-length: 0\r\n\r\n".to_owned(),
    ] {
        let received = raw(&world, &format!("{head}{framing}{inner}")).await;
        let all = statuses(&received);
        assert!(all[0].starts_with('4'), "{framing:?}: {received}");
        assert!(all.iter().skip(1).all(|status| *status == "401"), "{framing:?}: {received}");
        assert!(all.len() <= 2, "{framing:?}: {received}");
    }
    world.stop().await;
}

#[tokio::test]
async fn ambiguous_framing_is_refused() {
    let world = RestWorld::with_remote("").await;
    let body = r#"{"taskId": "smuggled", "task": {"type": "a"}}"#;
    let length = body.len();
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    for (framing, content) in [
        (format!("content-length: {length}\r\ncontent-length: 3\r\n"), body),
        (format!("content-length: {length}, 3\r\n"), body),
        (format!("content-length: +{length}\r\n"), body),
        (format!("content-length: 0x{length:x}\r\n"), body),
        ("content-length: -1\r\n".to_owned(), body),
        ("content-length: 99999999999999999999\r\n".to_owned(), body),
        ("transfer-encoding: xchunked\r\n".to_owned(), &*chunked),
        ("transfer-encoding: chunked, identity\r\n".to_owned(), &chunked),
        ("transfer-encoding : chunked\r\n".to_owned(), &chunked),
        ("transfer-encoding: gzip\r\n".to_owned(), &chunked),
        ("transfer-encoding: chunked\r\n".to_owned(), "ffffffffffffffffff\r\n{}"),
        ("transfer-encoding: chunked\r\n".to_owned(), "-1\r\n{}\r\n0\r\n\r\n"),
    ] {
        let head = format!(
            "POST {TASKS} HTTP/1.1\r\nhost: {}\r\nx-api-key: {ALICE}\r\ncontent-type: application/json\r\n\
             connection: close\r\n{framing}\r\n{content}",
            world.address
        );
        let received = raw(&world, &head).await;
        let all = statuses(&received);
        assert!(all.iter().all(|status| status.starts_with('4')), "{framing:?}: {received}");
    }
    world.get(ALICE, &format!("{TASKS}/smuggled")).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    let world = RestWorld::with_remote("").await;
    let host = world.address;
    for head in [
        format!("GET /agents HTTP/1.1\r\nhost: {host}\r\nx-api-key : {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nhost: {host}\r\nx-api-key:\r\n {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nhost: {host}\r\n x-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nhost: {host}\r\nx-api-key: {ADMIN}\0\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nhost: {host}\r\nx-api-key: a\rx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nhost: {host}\r\nhost: evil.example\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nhost: evil.example\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1\r\nconnection: close\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/1.1 \r\nhost: {host}\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents HTTP/9.9\r\nhost: {host}\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET  /agents HTTP/1.1\r\nhost: {host}\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /agents\r\nhost: {host}\r\nx-api-key: {ADMIN}\r\n\r\n"),
        format!("GET /{} HTTP/1.1\r\nhost: {host}\r\nx-api-key: {ADMIN}\r\n\r\n", "a".repeat(1 << 20)),
        format!(
            "GET /agents HTTP/1.1\r\nhost: {host}\r\nx-api-key: {ADMIN}\r\n{}\r\n",
            "x-filler: 1\r\n".repeat(500)
        ),
    ] {
        let head = head.replacen("\r\nhost", "\r\nconnection: close\r\nhost", 1);
        let received = raw(&world, &head).await;
        let shown = head.get(..80).unwrap_or(&head);
        assert!(
            statuses(&received).iter().all(|status| status.starts_with(['4', '5'])),
            "{shown:?}: {received}"
        );
    }
    // The server goes on.
    world.get(ADMIN, "/agents").await.expect(200);
    world.stop().await;
}

#[tokio::test]
async fn each_request_of_a_connection_has_its_own_principal() {
    let world = RestWorld::with_remote("").await;
    let request = |key: &str, more: &str| {
        format!(
            "GET /principals/alice/data HTTP/1.1\r\nhost: {}\r\nx-api-key: {key}\r\n{more}\r\n",
            world.address
        )
    };
    let pipelined =
        [request(ALICE, ""), request(BOB, ""), request("unknown", "connection: close\r\n")].concat();
    let received = raw(&world, &pipelined).await;
    assert_eq!(statuses(&received), ["200", "404", "401"], "{received}");
    world.stop().await;
}

#[tokio::test]
async fn paths_beside_the_open_ones_need_a_key() {
    let world = RestWorld::start("").await;
    for path in [
        "/health/",
        "/health/.",
        "/health/..",
        "/health/../metrics",
        "//health",
        "/./health",
        "/HEALTH",
        "/%68ealth",
        "/health%00",
        "/health%2f",
        "/health%2f..%2fmetrics",
        "/health;/metrics",
        "/health\\",
        "/ready/../agents",
        "/ready%20",
        "/metrics/health",
        "/agents/health",
        "/agents/..%2fhealth",
        "/openapi.json",
        "/openapi.json/",
        "/.well-known/agent.json",
        "/acp/../health",
    ] {
        let answered = world.send(&Call::new("GET", path)).await;
        assert_eq!(answered.status, 401, "{path}: {answered:?}");
    }
    // A query is not a part of the path, and other methods are not open.
    assert_eq!(world.get("", "/health?path=/metrics").await.text, "ok");
    assert_ne!(world.send(&Call::new("POST", "/health")).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn headers_of_proxies_change_neither_path_nor_method() {
    let world = RestWorld::with_remote("").await;
    let names = ["x-original-url", "x-rewrite-url", "x-forwarded-path", "x-forwarded-uri"];
    for name in names {
        let call = Call::new("GET", "/health").header(name, "/metrics");
        assert_eq!(world.send(&call).await.text, "ok", "{name}");
        let call = Call::new("GET", "/agents").header(name, "/health");
        world.send(&call).await.refused(401, "unauthenticated");
    }
    for name in ["x-http-method-override", "x-http-method", "x-method-override"] {
        let call = Call::new("GET", "/registry/agents/remote").key(ADMIN).header(name, "DELETE");
        world.send(&call).await.refused(405, "method_not_allowed");
        let call =
            Call::new("POST", "/principals/alice/data?_method=DELETE").key(ALICE).header(name, "DELETE");
        world.send(&call).await.refused(405, "method_not_allowed");
    }
    for (name, value) in [
        ("x-forwarded-user", "local"),
        ("x-remote-user", "local"),
        ("x-principal", "local"),
        ("forwarded", "for=127.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
    ] {
        world.send(&Call::new("GET", "/metrics").header(name, value)).await.refused(401, "unauthenticated");
        let call = Call::new("GET", "/metrics").key(ALICE).header(name, value);
        world.send(&call).await.refused(403, "not_authorized");
    }
    world.get(ADMIN, "/agents/remote").await.expect(200);
    world.stop().await;
}

#[tokio::test]
async fn a_key_is_read_from_its_headers_alone() {
    let world = RestWorld::with_remote("").await;
    for query in ["X-API-Key=token", "x-api-key=token", "api_key=token", "access_token=token", "key=token"] {
        world.send(&Call::new("GET", &format!("/agents?{query}"))).await.refused(401, "unauthenticated");
    }
    for (name, value) in [
        ("cookie", "X-API-Key=token; token=token"),
        ("authorization", "token"),
        ("authorization", "Basic bG9jYWw6dG9rZW4="),
        ("authorization", "Bearer  token"),
        ("authorization", "Bearer token, Bearer token"),
        ("authorization", "Bearer \"token\""),
        ("proxy-authorization", "Bearer token"),
        ("x-api-key", "Bearer token"),
        ("x-api-key", "token,token"),
        ("x-api-key", "TOKEN"),
        ("x-api-key", "toke"),
        ("x-api-key", "tokens"),
        ("x_api_key", "token"),
    ] {
        let refused = world.send(&Call::new("GET", "/agents").header(name, value)).await;
        assert_eq!(refused.status, 401, "{name}: {value}: {refused:?}");
    }
    // The names of headers have no case.
    for name in ["X-API-Key", "X-API-KEY", "x-aPi-kEy"] {
        world.send(&Call::new("GET", "/agents").header(name, "token")).await.expect(200);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_principal_has_one_rate_in_all_spellings() {
    let world = RestWorld::with_remote("[limits]\nrequests_per_minute = 20").await;
    // Requests without a valid key are no requests of a principal.
    for number in 0..50 {
        world.get(&format!("guess-{number}"), "/agents").await.refused(401, "unauthenticated");
    }
    let mut last = 0;
    for number in 0..40 {
        let call = Call::new("GET", if number % 2 == 0 { "/agents" } else { "/sessions" });
        let call = match number % 4 {
            0 => call.header("x-api-key", ALICE),
            1 => call.header("X-API-KEY", ALICE),
            2 => call.header("authorization", &format!("Bearer {ALICE}")),
            _ => {
                call.header("Authorization", &format!("Bearer {ALICE}")).header("x-forwarded-for", "10.0.0.1")
            }
        };
        last = world.send(&call.header("user-agent", &number.to_string())).await.status;
        if last == 429 {
            break;
        }
    }
    assert_eq!(last, 429);
    world.get(BOB, "/agents").await.expect(200);
    world.stop().await;
}

#[tokio::test]
async fn a_refusal_is_not_a_page() {
    let world = RestWorld::with_remote("").await;
    let script = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for (call, status) in [
        (Call::new("GET", &format!("/agents/{script}")), 404),
        (Call::new("GET", &format!("/{script}")), 404),
        (Call::new("GET", &format!("/agents?limit={script}")), 400),
        (Call::new("GET", &format!("/agents?{script}=1")), 400),
        (Call::new("POST", TASKS).raw("<script>alert(1)</script>/html", "{}"), 415),
        (Call::new("POST", TASKS).json(json!({"task": {"type": "a"}, "callback": "<script>"})), 400),
    ] {
        let refused = world.send(&call.key(ALICE).header("accept", "text/html")).await;
        assert_eq!(refused.status, status, "{refused:?}");
        assert_eq!(refused.header("content-type"), Some("application/json"));
    }
    world.stop().await;
}
