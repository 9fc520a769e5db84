//! The page of the operator: its login, its cookie and token, and what a request without them gets.

use std::time::Duration;

use duologue_test_support::in_time;
use serde_json::json;

use crate::rest::attacks::raw;
use crate::rest::hosted::writer;
use crate::rest::recorder::recorded;
use crate::rest::world::{ADMIN, ALICE, Call, RestResponse, RestWorld, STRANGER};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The files that the page needs beside its document.
const SCRIPTS: [&str; 4] = ["/page/app.js", "/page/list.js", "/page/sections.js", "/page/view.js"];
const OPEN_FILES: [&str; 4] = ["/login", "/page/login.js", "/page/api.js", "/page/page.css"];

/// The secrets of a login.
struct Login {
    cookie: String,
    token: String,
}

impl Login {
    fn of(response: &RestResponse) -> Self {
        let cookie = response.header("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
        Login { cookie, token: response.json()["token"].as_str().expect("a token").to_owned() }
    }

    /// Adds the cookie alone.
    fn with_cookie(&self, call: Call) -> Call {
        call.header("cookie", &format!("other=1; {}", self.cookie))
    }

    /// Adds the cookie and the token, as the page does.
    fn with(&self, call: Call) -> Call {
        self.with_cookie(call).header("x-duologue-page", &self.token)
    }

    async fn get(&self, world: &RestWorld, path: &str) -> RestResponse {
        world.send(&self.with(Call::new("GET", path))).await
    }
}

fn form(key: &str) -> Call {
    Call::new("POST", "/login").raw("application/x-www-form-urlencoded", format!("key={key}"))
}

async fn log_in(world: &RestWorld, key: &str) -> Login {
    let response = world.send(&form(key)).await;
    response.expect(200);
    Login::of(&response)
}

#[tokio::test]
async fn a_key_opens_a_login_with_a_cookie_that_scripts_cannot_read() {
    let world = RestWorld::with_remote("").await;
    let response = world.send(&form(ALICE)).await;
    assert_eq!(response.expect(200)["principal"], "alice");
    let cookie = response.header("set-cookie").unwrap();
    for flag in ["; path=/;", "; httponly", "; samesite=strict", "; max-age=43200"] {
        assert!(cookie.contains(flag), "{cookie}");
    }
    assert!(!cookie.contains(ALICE) && !response.text.contains(ALICE), "{response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let login = Login::of(&response);
    assert!(!login.cookie.contains(&login.token));
    // The principal is that of the key, and its permissions are the same.
    let agents = login.get(&world, "/agents").await;
    assert_eq!(agents.expect(200), world.get(ALICE, "/agents").await.expect(200));
    assert_eq!(agents.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(login.get(&world, "/page/login").await.expect(200)["principal"], "alice");
    login.get(&world, "/metrics").await.refused(403, "not_authorized");
    // So is that of the token of the data folder.
    let local = log_in(&world, ADMIN).await;
    assert_eq!(local.get(&world, "/metrics").await.status, 200);
    let recorded = recorded("duologue::audit");
    assert!(
        recorded.iter().any(|line| line.contains("page_login") && line.contains("alice")),
        "{recorded:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_login_ends_with_its_key() {
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let guest = format!(
        r#"
        [[principals]]
        id = "guest"
        key_sha256 = "c23e1cb9ae13908a2ac9550851759b29591985211c12813483f20861be72d356"
        key_expires = "{expires}"
        "#
    );
    let world = RestWorld::start(&guest).await;
    let response = world.send(&form("guest-key")).await;
    let seconds = response.expect(200)["expiresIn"].as_u64().unwrap();
    assert!((3_000..=3_600).contains(&seconds), "{seconds}");
    assert!(response.header("set-cookie").unwrap().contains(&format!("; max-age={seconds}")));
    world.stop().await;
}

#[tokio::test]
async fn a_login_needs_a_valid_key_in_a_form() {
    let world = RestWorld::with_remote("").await;
    for key in ["", "unknown", "%20", "token%0d%0ax-evil:%201", "a%00"] {
        let refused = world.send(&form(key)).await;
        refused.refused(401, "unauthenticated");
        assert!(refused.header("set-cookie").is_none() && refused.header("x-evil").is_none());
    }
    let login = |kind: &str, body: &str| Call::new("POST", "/login").raw(kind, body);
    let form = "application/x-www-form-urlencoded";
    world.send(&login(form, "name=a")).await.refused(400, "invalid_parameter");
    world.send(&login(form, &"a".repeat(17_000))).await.refused(413, "too_large");
    let json = login("application/json", r#"{"key": "token"}"#);
    world.send(&json).await.refused(415, "unsupported_media_type");
    // A key is never read from an address.
    for path in [format!("/login?key={ADMIN}"), format!("/?key={ADMIN}"), format!("/agents?key={ADMIN}")] {
        let opened = world.send(&Call::new("GET", &path)).await;
        assert!(opened.header("set-cookie").is_none() && opened.status != 500, "{opened:?}");
        assert!(!opened.text.contains("remote"), "{opened:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn nothing_is_shown_without_a_login() {
    let world = RestWorld::with_remote("").await;
    let page = world.send(&Call::new("GET", "/")).await;
    assert_eq!((page.status, page.header("location"), page.text.as_str()), (303, Some("/login"), ""));
    for path in OPEN_FILES {
        let file = world.send(&Call::new("GET", path)).await;
        assert_eq!(file.status, 200, "{path}");
        assert!(!file.text.contains("remote"), "{path}");
    }
    let icon = world.send(&Call::new("GET", "/favicon.ico")).await;
    assert_eq!((icon.status, icon.text.as_str()), (204, ""));
    let ended = "duologue_page=0123456789abcdef0123456789abcdef";
    for path in SCRIPTS.into_iter().chain(["/page/login", "/agents", "/sessions", "/metrics"]) {
        world.send(&Call::new("GET", path)).await.refused(401, "unauthenticated");
        let unknown = Call::new("GET", path).header("cookie", ended).header("x-duologue-page", "x");
        world.send(&unknown).await.refused(401, "unauthenticated");
    }
    world.send(&Call::new("POST", "/logout")).await.refused(401, "unauthenticated");
    // A login gives the permissions of its key and no others.
    let stranger = log_in(&world, STRANGER).await;
    assert_eq!(stranger.get(&world, "/agents").await.expect(200)["pagination"]["total"], 0);
    stranger.get(&world, "/agents/remote/tasks").await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn the_page_has_a_strict_policy_and_no_code_in_its_documents() {
    let world = RestWorld::with_remote("").await;
    let login = log_in(&world, ALICE).await;
    for path in ["/"].into_iter().chain(OPEN_FILES).chain(SCRIPTS) {
        let file = world.send(&login.with_cookie(Call::new("GET", path))).await;
        assert_eq!(file.status, 200, "{path}: {file:?}");
        assert_eq!(file.header("content-security-policy"), Some(POLICY), "{path}");
        assert_eq!(file.header("x-frame-options"), Some("deny"), "{path}");
        assert_eq!(file.header("referrer-policy"), Some("same-origin"), "{path}");
        if file.header("content-type").unwrap().starts_with("text/html") {
            let inline = ["<style", " style=", " onclick=", " onload=", "javascript:", "http://", "https://"];
            assert!(!inline.iter().any(|part| file.text.contains(part)), "{path}");
            assert!(file.text.matches("<script").count() == file.text.matches(" src=\"/page/").count());
        } else {
            assert!(!file.text.contains("innerHTML ") && !file.text.contains("eval("), "{path}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn the_cookie_alone_reads_and_changes_nothing() {
    let world = RestWorld::with_remote("").await;
    let (login, other) = (log_in(&world, ALICE).await, log_in(&world, ALICE).await);
    let task = json!({"taskId": "t1", "task": {"type": "a"}});
    let create = || Call::new("POST", "/agents/remote/tasks").json(&task);
    for call in [Call::new("GET", "/agents"), create(), Call::new("POST", "/logout")] {
        let refused = world.send(&login.with_cookie(call)).await;
        assert!(refused.refused(403, "not_authorized").contains("X-Duologue-Page"), "{refused:?}");
    }
    // The token of another login is not the token.
    let mixed = login.with_cookie(create()).header("x-duologue-page", &other.token);
    world.send(&mixed).await.refused(403, "not_authorized");
    let swapped = create().header("cookie", &format!("duologue_page={}", login.token));
    world.send(&swapped.header("x-duologue-page", &login.token)).await.refused(401, "unauthenticated");
    world.get(ALICE, "/agents/remote/tasks/t1").await.refused(404, "not_found");
    world.send(&login.with(create())).await.expect(202);
    world.get(ALICE, "/agents/remote/tasks/t1").await.expect(200);
    // A key needs no token, and the cookie beside it does not count.
    let with_key = login.with_cookie(Call::new("GET", "/agents/remote/tasks/t1")).key(STRANGER);
    world.send(&with_key).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn a_foreign_page_is_refused() {
    let world = RestWorld::with_remote("").await;
    let login = log_in(&world, ALICE).await;
    let own = format!("http://{}", world.address);
    let task = |id: &str| {
        Call::new("POST", "/agents/remote/tasks").json(json!({"taskId": id, "task": {"type": "a"}}))
    };
    for origin in [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        &own.replace("http:", "https:"),
        &format!("{own}.evil.example"),
    ] {
        world.send(&form(ALICE).header("origin", origin)).await.refused(403, "not_authorized");
        let call = login.with(task("t1")).header("origin", origin);
        world.send(&call).await.refused(403, "not_authorized");
        let two = login.with(task("t1")).header("origin", &own).header("origin", origin);
        world.send(&two).await.refused(403, "not_authorized");
    }
    // The host is checked too, so a name that an attacker points here is refused.
    let rebound = "POST /login HTTP/1.1\r\nhost: evil.example\r\norigin: http://evil.example\r\n\
                   content-type: application/x-www-form-urlencoded\r\ncontent-length: 9\r\n\
                   connection: close\r\n\r\nkey=token";
    assert!(raw(&world, rebound).await.starts_with("HTTP/1.1 403 "));
    world.get(ALICE, "/agents/remote/tasks/t1").await.refused(404, "not_found");
    // Its own requests have its own origin, also those for scripts.
    for path in OPEN_FILES {
        assert_eq!(world.send(&Call::new("GET", path).header("origin", &own)).await.status, 200, "{path}");
        let foreign = Call::new("GET", path).header("origin", "http://evil.example");
        world.send(&foreign).await.refused(403, "not_authorized");
    }
    world.send(&Call::new("GET", SCRIPTS[0]).header("origin", &own)).await.refused(403, "not_authorized");
    world.send(&login.with_cookie(Call::new("GET", SCRIPTS[0])).header("origin", &own)).await;
    world.send(&form(ALICE).header("origin", &own)).await.expect(200);
    world.send(&login.with(task("t2")).header("origin", &own)).await.expect(202);
    // A key with an origin is refused as before.
    world.send(&task("t3").key(ALICE).header("origin", &own)).await.refused(403, "not_authorized");
    world.stop().await;
}

#[tokio::test]
async fn a_login_ends_by_logging_out_and_by_its_time() {
    let world = RestWorld::with_remote("[limits]\npage_login_seconds = 2").await;
    let (first, second) = (log_in(&world, ALICE).await, log_in(&world, ALICE).await);
    let out = world.send(&first.with(Call::new("POST", "/logout"))).await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().starts_with("duologue_page=; path=/;"), "{out:?}");
    assert!(out.header("set-cookie").unwrap().contains("max-age=0"));
    first.get(&world, "/agents").await.refused(401, "unauthenticated");
    second.get(&world, "/agents").await.expect(200);
    in_time(async {
        while second.get(&world, "/agents").await.status == 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    second.get(&world, "/agents").await.refused(401, "unauthenticated");
    let page = world.send(&second.with_cookie(Call::new("GET", "/"))).await;
    assert_eq!((page.status, page.header("location")), (303, Some("/login")));
    world.stop().await;
}

#[tokio::test]
async fn the_number_of_logins_is_limited() {
    let world = RestWorld::with_remote("[limits]\npage_logins = 2").await;
    let first = log_in(&world, ALICE).await;
    log_in(&world, ADMIN).await;
    let refused = world.send(&form(STRANGER)).await.refused(429, "overloaded");
    assert!(refused.contains("limits.page_logins"), "{refused}");
    world.send(&first.with(Call::new("POST", "/logout"))).await;
    log_in(&world, STRANGER).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_view_of_a_session_has_each_message_once() {
    let world = RestWorld::start(&writer()).await;
    let task = json!({"taskId": "t1", "task": {"type": "write", "parameters": {"prompt": "tools"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    world.open(&Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE)).await.end().await;
    let session = world.get(ALICE, "/sessions").await.expect(200)["sessions"][0]["sessionId"].clone();
    let path = format!("/sessions/{}", session.as_str().unwrap());
    let view = world.get(ALICE, &format!("{path}/view")).await.expect(200);
    let items = view["items"].as_array().unwrap();
    assert_eq!((&view["pagination"]["total"], &view["more"]), (&json!(items.len()), &json!(false)));
    assert_eq!(view["live"], false);
    let tools = items.iter().filter(|item| item["kind"] == "tool").count();
    assert!(
        tools > 0 && items.iter().any(|item| item["kind"] == "user" && item["text"] == "tools"),
        "{view}"
    );
    // Fewer items than records, in the order of the log.
    let log = world.get(ALICE, &format!("{path}/log?limit=1000")).await.expect(200);
    assert!(items.len() < log["records"].as_array().unwrap().len());
    assert_eq!(view["next"], log["next"]);
    let page = world.get(ALICE, &format!("{path}/view?offset=1&limit=2")).await.expect(200);
    assert_eq!(page["items"], json!(items[1..3]));
    // The lines of an item are those of the log.
    let tool = items.iter().find(|item| item["kind"] == "tool").unwrap();
    for number in tool["frames"].as_array().unwrap() {
        let number = number.as_u64().unwrap();
        let lines =
            world.get(ALICE, &format!("{path}/view/lines?after={}&limit=1", number - 1)).await.expect(200);
        let line = &lines["lines"][0];
        assert_eq!((&line["number"], &lines["next"]), (&json!(number), &json!(number)));
        let record = &log["records"][usize::try_from(number - 1).unwrap()]["record"];
        let text: serde_json::Value = serde_json::from_str(line["text"].as_str().unwrap()).unwrap();
        assert_eq!((&text, &line["from"]), (&record["frame"], &record["from"]));
    }
    // A part of the log, and one that is not there.
    let part = world.get(ALICE, &format!("{path}/view?after={}", view["next"])).await.expect(200);
    assert_eq!(part["pagination"]["total"], 0);
    world.get(ALICE, &format!("{path}/view?after=100000")).await.refused(410, "expired");
    for key in [ADMIN, STRANGER] {
        world.get(key, &format!("{path}/view")).await.refused(404, "not_found");
        world.get(key, &format!("{path}/view/lines")).await.refused(404, "not_found");
    }
    world.delete(ALICE, &path).await.expect(204);
    world.get(ALICE, &format!("{path}/view")).await.refused(404, "not_found");
    world.stop().await;
}
