//! Every check of a server can fail: for each there is a server with one fault that it finds, and that no other check takes
//! for its own. Our server passes all of them.

use std::time::Duration;

use duologue_conformance::{
    ConnectOptions, Error, Report, Severity, TransportSuite, Verdict, checks_transport,
};
use duologue_http::{Error as HttpError, RemoteTransport};
use duologue_test_support::in_time;
use futures_util::StreamExt as _;

use crate::faulty_server::{NONE, TOKEN, start};

/// The servers that are checked at once.
const AT_ONCE: usize = 24;

fn options(transport: RemoteTransport) -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.bearer_token = Some(TOKEN.into());
    options.transport = transport;
    options
}

async fn check(fault: &'static str, transport: RemoteTransport) -> Report {
    let url = start(fault).await;
    // A fault that is silence takes this long.
    let timeout = Duration::from_secs(2);
    let suite = TransportSuite::new(url, options(transport)).timeout(timeout).prompt("say three things");
    suite.run().await.expect("a report")
}

fn of_verdict(report: &Report, verdict: Verdict) -> Vec<&str> {
    let results = report.results().iter().filter(|result| result.verdict() == verdict);
    results.map(|result| result.check().name()).collect()
}

#[tokio::test]
async fn our_server_passes_all_checks() {
    in_time(async {
        let report = check(NONE, RemoteTransport::Auto).await;
        report.assert_passed();
        let summary = report.summary();
        assert_eq!((summary.fail, summary.warn, summary.skipped), (0, 0, 0), "{}", report.to_text());
        assert_eq!(summary.pass, checks_transport().count());
    })
    .await;
}

#[tokio::test]
async fn a_transport_is_checked_alone() {
    in_time(async {
        for (transport, has, lacks) in [
            (RemoteTransport::WebSocket, "ws-turn", "http-initialize"),
            (RemoteTransport::Events, "sse-session-answers", "ws-turn"),
        ] {
            let report = check(NONE, transport).await;
            report.assert_passed();
            let passed = of_verdict(&report, Verdict::Pass);
            assert!(passed.contains(&has) && !passed.contains(&lacks), "{passed:?}");
        }
    })
    .await;
}

/// A server needs only one of the transports, unless the options name it.
#[tokio::test]
async fn a_transport_that_the_server_does_not_have_is_skipped() {
    in_time(async {
        for (fault, transport, prefixes) in [
            ("no-http", RemoteTransport::Events, ["http-", "sse-"]),
            ("no-websocket", RemoteTransport::WebSocket, ["ws-", "ws-"]),
        ] {
            let report = check(fault, RemoteTransport::Auto).await;
            report.assert_passed();
            for name in of_verdict(&report, Verdict::Skipped) {
                assert!(prefixes.iter().any(|prefix| name.starts_with(prefix)), "{name}");
            }
            assert!(!check(fault, transport).await.passed());
        }
    })
    .await;
}

#[tokio::test]
async fn each_fault_is_found_by_its_check_alone() {
    let mut wrong = Vec::new();
    let reports = checks_transport().map(|of_fault| async move {
        let report = check(of_fault.name(), RemoteTransport::Auto).await;
        (of_fault, report)
    });
    let mut reports = futures_util::stream::iter(reports).buffer_unordered(AT_ONCE);
    while let Some((check, report)) = in_time(reports.next()).await {
        let (failed, warned) = (of_verdict(&report, Verdict::Fail), of_verdict(&report, Verdict::Warn));
        let expected = match check.severity() {
            Severity::Must => (vec![check.name()], vec![]),
            Severity::Should => (vec![], vec![check.name()]),
        };
        let shown = report.results().iter().find(|result| result.check().name() == check.name());
        let has_records = shown.is_some_and(|result| !result.records().is_empty());
        if (failed, warned) != expected || !has_records {
            wrong.push(format!("{}: {}", check.name(), report.to_text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
async fn the_token_is_not_in_the_report() {
    in_time(async {
        let report = check("token-required", RemoteTransport::Auto).await;
        assert!(!report.to_json_lines().contains(TOKEN));
        let text = report.to_text();
        assert!(text.contains("token-required") && text.contains("is accepted"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_be_checked_is_an_error() {
    in_time(async {
        let url = start(NONE).await;
        let refused = TransportSuite::new(&url, ConnectOptions::default()).run().await;
        assert!(
            matches!(refused, Err(Error::Server(HttpError::Refused { status: 401, .. }))),
            "{:?}",
            refused.err()
        );
        let nobody = TransportSuite::new("http://127.0.0.1:1/acp", ConnectOptions::default()).run().await;
        assert!(matches!(nobody, Err(Error::Server(HttpError::Unreachable { .. }))), "{:?}", nobody.err());
        let unknown = TransportSuite::new(&url, options(RemoteTransport::WebSocket)).only(["sse-replay"]);
        assert!(matches!(unknown.err(), Some(Error::UnknownCheck(name)) if name == "sse-replay"));
    })
    .await;
}
