//! The capabilities that a client advertises: those of its host, of its closures and of `Client::advertise`.

use duologue_client::schema::{
    AuthCapabilities, ClientSessionCapabilities, CreateElicitationRequest, CreateElicitationResponse,
    FileSystemCapabilities, Meta, NoticeCapabilities, ReadTextFileRequest, ReadTextFileResponse,
};
use duologue_client::{Client, Host, LocalHost};
use serde_json::{Value, json};

use duologue_test_support::{ScriptedPeer, Wire, in_time};

/// Returns the params of `initialize`.
async fn initialize<H: Host>(client: Client<H>) -> (Value, duologue_client::Connection, ScriptedPeer) {
    let (transport, mut script) = Wire::Memory.scripted();
    let (connection, hello) = tokio::join!(client.connect(transport), script.accept_initialize(json!({})));
    (hello["params"].clone(), connection.expect("a connection"), script)
}

#[tokio::test]
async fn an_editor_advertises_more_than_its_host() {
    in_time(async {
        let client = Client::new(LocalHost::new("/tmp").read_only())
            .meta(Meta::from_iter([("start", 1)]))
            .advertise(|capabilities| {
                let session = ClientSessionCapabilities::new().notices(NoticeCapabilities::new());
                let mut capabilities = capabilities.session(session);
                capabilities.meta.get_or_insert_default().insert("example.com/theme", "dark");
                capabilities
            })
            .advertise(|capabilities| capabilities.auth(AuthCapabilities::new().terminal(true)));
        let (params, ..) = initialize(client).await;
        let expected = json!({
            "fs": {"readTextFile": true},
            "session": {"notices": {}},
            "auth": {"terminal": true},
            "_meta": {"example.com/theme": "dark", "duologue": {"messageClear": true}},
        });
        assert_eq!((&params["clientCapabilities"], &params["_meta"]), (&expected, &json!({"start": 1})));
    })
    .await;
}

#[tokio::test]
async fn closures_are_advertised_before_the_changes() {
    in_time(async {
        let client = || {
            Client::new(())
                .on(async |_, _: ReadTextFileRequest| Ok(ReadTextFileResponse::new("text")))
                .on(async |_, _: CreateElicitationRequest| Ok(CreateElicitationResponse::cancel()))
        };
        let (params, ..) = initialize(client().without_message_clear()).await;
        let expected = json!({"fs": {"readTextFile": true}, "elicitation": {"form": {}, "url": {}}});
        assert_eq!(params["clientCapabilities"], expected);

        // A capability that was removed is not served.
        let client = client().advertise(|capabilities| {
            assert!(capabilities.fs.read_text_file);
            capabilities.fs(FileSystemCapabilities::new())
        });
        let (params, connection, mut script) = initialize(client).await;
        assert!(params["clientCapabilities"].get("fs").is_none_or(|fs| fs.get("readTextFile").is_none()));
        let (_session, ()) = tokio::join!(connection.new_session("/tmp"), script.accept_session("s"));
        let answer = script.request("fs/read_text_file", json!({"sessionId": "s", "path": "/tmp/x"})).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    })
    .await;
}
