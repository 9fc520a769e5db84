//! Access to the server: the token, and requests that come from a page in a browser.

use duologue_http::Error as HttpError;

use crate::finding::{Finding, Outcome, checks, fail, pass, skip, warn};
use crate::transport::TransportKind;
use crate::transport::harness::ServerHarness;
use crate::transport::http::JSON;
use crate::transport::wire::{ServerWire, initialize};

checks! { server "access";
    "health" => health, Should, REMOTE,
        "`GET /health` is answered with 200, if the server has it.";
    "token-required" => token_required, Must, REMOTE,
        "A request without the token, or with another one, is refused with 401 or 403.";
    "origin-refused" => origin_refused, Should, RESUMPTION,
        "A request of a page in a browser (a foreign `Origin`) is refused.";
    "host-refused" => host_refused, Should, RESUMPTION,
        "A server at a loopback address refuses a foreign `Host`, since a page can rebind its name to this machine.";
}

async fn health(harness: &mut ServerHarness) -> Outcome {
    let answer = harness.wire.request_to(Some("/health"), "GET", &[], "").await?;
    match answer.status {
        200..=299 => Ok(pass(answer.shown())),
        401 | 403 | 404 | 405 => Ok(skip(format!("the server has none (status {})", answer.status))),
        _ => Ok(fail(answer.shown())),
    }
}

/// The answer to the first request of a connection.
enum Entry {
    Refused { status: u16 },
    Accepted,
    Other(Finding),
}

/// Tries to open a connection over each transport, with more headers.
async fn entries(
    harness: &ServerHarness,
    wire: &ServerWire,
    header: Option<(&str, &str)>,
) -> Result<Vec<(&'static str, Entry)>, Finding> {
    let mut entries = Vec::new();
    if harness.has(TransportKind::Http) {
        let mut headers = vec![JSON];
        headers.extend(header);
        let answer = wire.request("POST", &headers, &initialize().to_string()).await?;
        harness.register(answer.connection_id.clone());
        let entry = match answer.status {
            200..=299 => Entry::Accepted,
            400..=499 => Entry::Refused { status: answer.status },
            _ => Entry::Other(fail(format!("a POST is answered with {}", answer.shown()))),
        };
        entries.push(("POST", entry));
    }
    if harness.has(TransportKind::WebSocket) {
        let headers: Vec<(&str, &str)> = header.into_iter().collect();
        let entry = match wire.client.upgrade(&headers).await {
            Ok((mut socket, _)) => {
                // A socket that is lost is closed.
                let _ = socket.send_close(1000).await;
                Entry::Accepted
            }
            Err(HttpError::Refused { status: status @ 400..=499, .. }) => Entry::Refused { status },
            Err(error) => Entry::Other(fail(format!("an upgrade failed: {error}"))),
        };
        entries.push(("upgrade", entry));
    }
    Ok(entries)
}

async fn token_required(harness: &mut ServerHarness) -> Outcome {
    if !harness.has_token {
        return Ok(skip("no token is known"));
    }
    let wrong = ("Authorization", "Bearer 0000000000000000");
    for (header, name) in [(None, "without the token"), (Some(wrong), "with another token")] {
        for (request, entry) in entries(harness, &harness.anonymous, header).await? {
            match entry {
                Entry::Refused { status: 401 | 403 } => {}
                Entry::Refused { status } => {
                    return Ok(fail(format!("a {request} {name} is refused with {status}, not 401 or 403")));
                }
                Entry::Accepted if harness.settings.requires_token => {
                    return Ok(fail(format!("a {request} {name} is accepted")));
                }
                Entry::Accepted => return Ok(skip("the server needs no token")),
                Entry::Other(finding) => return Ok(finding),
            }
        }
    }
    Ok(pass("refused without the token and with another one"))
}

async fn origin_refused(harness: &mut ServerHarness) -> Outcome {
    foreign(harness, ("Origin", "https://page.example")).await
}

async fn host_refused(harness: &mut ServerHarness) -> Outcome {
    if !harness.is_loopback {
        return Ok(skip("the address is no loopback address"));
    }
    foreign(harness, ("Host", "page.example")).await
}

/// Expects that a header of a page is refused. The published toolkits differ in that, so it is a recommendation.
async fn foreign(harness: &mut ServerHarness, header: (&str, &str)) -> Outcome {
    let (name, value) = header;
    let mut shown = Vec::new();
    for (request, entry) in entries(harness, &harness.wire, Some(header)).await? {
        match entry {
            Entry::Refused { status } => shown.push(format!("{request}: {status}")),
            Entry::Accepted => return Ok(warn(format!("a {request} with `{name}: {value}` is accepted"))),
            Entry::Other(finding) => return Ok(finding),
        }
    }
    Ok(pass(shown.join(", ")))
}
