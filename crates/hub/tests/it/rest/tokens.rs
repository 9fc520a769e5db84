//! Tokens of a provider, whose keys a server on a loopback port publishes.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::remote_agents::until_true;
use crate::rest::world::{ADMIN, Call, RestResponse, RestWorld};

/// A provider of tokens.
struct Issuer {
    key: KeyPair,
    server: Receiver,
}

impl Issuer {
    async fn start() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let x = URL_SAFE_NO_PAD.encode(key.der_bytes());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": x}]}).to_string();
        let server = Receiver::start(move |_, _| (StatusCode::OK, set.clone()).into_response()).await;
        Issuer { key, server }
    }

    /// Returns the part of the configuration for this provider.
    fn config(&self) -> String {
        format!(
            r#"
            [[token_providers]]
            name = "corp"
            issuer = "https://login.example"
            audience = "hub"
            keys_url = "http://{}/keys"
            roles_claim = "groups"
            "#,
            self.server.address
        )
    }

    /// Returns a token of the user `ada` with the role `user`, with some changed claims.
    fn token(&self, change: Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({
            "iss": "https://login.example", "sub": "ada", "aud": "hub", "exp": now + 600, "groups": ["user"],
        });
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.signed(&json!({"alg": "EdDSA", "kid": "k1"}), &claims)
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn agents(world: &RestWorld, token: &str) -> RestResponse {
    let call = Call::new("GET", "/agents").header("authorization", &format!("Bearer {token}"));
    world.send(&call).await
}

/// Waits until the gateway has read the keys of the provider.
async fn until_known(world: &RestWorld, token: &str) {
    until_true(async || agents(world, token).await.status == 200).await;
}

#[tokio::test]
async fn a_token_is_a_key_of_its_subject() {
    let issuer = Issuer::start().await;
    let world = RestWorld::with_remote(&issuer.config()).await;
    let ada = issuer.token(json!({}));
    until_known(&world, &ada).await;
    let task = json!({"taskId": "t1", "task": {"type": "a"}}).to_string();
    let call = |method, path| Call::new(method, path).header("authorization", &format!("Bearer {ada}"));
    world.send(&call("POST", "/agents/remote/tasks").json(&task)).await.expect(202);
    world.send(&call("GET", "/agents/remote/tasks/t1")).await.expect(200);
    // Another subject, a subject without a role, and a subject who says that it is an administrator.
    let path = "/agents/remote/tasks/t1";
    for (change, status) in [
        (json!({"sub": "eve"}), 404),
        (json!({"groups": []}), 404),
        (json!({"sub": "eve", "groups": ["admin"]}), 404),
        (json!({"sub": "eve", "groups": "admin user"}), 404),
    ] {
        let bearer = format!("Bearer {}", issuer.token(change.clone()));
        let response = world.send(&Call::new("GET", path).header("authorization", &bearer)).await;
        assert_eq!(response.status, status, "{change}");
    }
    world.stop().await;
}

#[tokio::test]
async fn the_subject_of_a_token_exports_and_erases_its_data() {
    let issuer = Issuer::start().await;
    let world = RestWorld::with_remote(&issuer.config()).await;
    let ada = issuer.token(json!({}));
    until_known(&world, &ada).await;
    let eve = issuer.token(json!({"sub": "eve"}));
    let bearer = |call: Call, token: &str| call.header("authorization", &format!("Bearer {token}"));
    let task = json!({"taskId": "t1", "task": {"type": "a"}}).to_string();
    let create = Call::new("POST", "/agents/remote/tasks").json(&task);
    world.send(&bearer(create, &ada)).await.expect(202);
    let data = "/principals/corp%2Fada/data";
    let exported = world.send(&bearer(Call::new("GET", data), &ada)).await;
    assert!(exported.status == 200 && exported.text.contains("\"t1\""), "{exported:?}");
    for method in ["GET", "DELETE"] {
        world.send(&bearer(Call::new(method, data), &eve)).await.refused(404, "not_found");
    }
    assert!(world.get(ADMIN, data).await.text.contains("\"t1\""));
    world.send(&bearer(Call::new("DELETE", data), &ada)).await.expect(200);
    let path = "/agents/remote/tasks/t1";
    world.send(&bearer(Call::new("GET", path), &ada)).await.refused(404, "not_found");
    world.stop().await;
}

#[tokio::test]
async fn the_work_of_a_subject_ends_with_its_provider() {
    let issuer = Issuer::start().await;
    let config = issuer.config();
    let world = RestWorld::with_remote(&config).await;
    let ada = issuer.token(json!({}));
    until_known(&world, &ada).await;
    let task = json!({"taskId": "t1", "task": {"type": "a"}}).to_string();
    let create = Call::new("POST", "/agents/remote/tasks").header("authorization", &format!("Bearer {ada}"));
    world.send(&create.json(&task)).await.expect(202);
    let path = "/agents/remote/tasks/t1?owner=corp%2Fada";
    let world = world.restart().await;
    assert_eq!(world.get(ADMIN, path).await.expect(200)["status"], "pending");
    let world = world.restart_with(|text| text.replace(&config, "")).await;
    assert_eq!(world.get(ADMIN, path).await.expect(200)["error"]["code"], "principal_removed");
    world.stop().await;
}

#[tokio::test]
async fn tokens_of_others_are_refused() {
    let issuer = Issuer::start().await;
    let stranger = Issuer::start().await;
    let world = RestWorld::with_remote(&issuer.config()).await;
    let good = issuer.token(json!({}));
    until_known(&world, &good).await;
    let claims = |token: &str| {
        let part = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        serde_json::from_slice::<Value>(&part).unwrap()
    };
    let ada = claims(&good);
    let mut parts = good.split('.');
    let (header, body) = (parts.next().unwrap(), parts.next().unwrap());
    let unsigned = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
    for (token, reason) in [
        (stranger.token(json!({})), "the signature of the token is wrong"),
        (format!("{header}.{body}."), "the signature of the token is wrong"),
        (format!("{unsigned}.{body}."), "the algorithm of the token is not"),
        // The public key as a shared secret.
        (issuer.signed(&json!({"alg": "HS256", "kid": "k1"}), &ada), "the algorithm of the token is not"),
        // A key for another algorithm.
        (issuer.signed(&json!({"alg": "RS256", "kid": "k1"}), &ada), "the key of the token is not known"),
        (issuer.signed(&json!({"alg": "EdDSA", "kid": "../k1"}), &ada), "the key of the token is not known"),
        (issuer.token(json!({"exp": 1_700_000_000})), "the token has expired"),
        (issuer.token(json!({"nbf": 9_000_000_000_u64})), "the token is not valid yet"),
        (issuer.token(json!({"aud": "another"})), "the token is for another audience"),
        (issuer.token(json!({"iss": "https://evil.example"})), "the issuer of the token is not known"),
        (issuer.token(json!({"sub": ""})), "the subject of the token"),
        ("a.b.c".to_owned(), "a part of the token is not base64url"),
        ("..".to_owned(), "the header or the claims of the token have a wrong form"),
    ] {
        let refused = agents(&world, &token).await;
        refused.refused(401, "unauthenticated");
        assert!(refused.text.contains(reason), "{reason}: {}", refused.text);
    }
    // Unknown keys are looked for at most once a minute.
    assert_eq!(issuer.server.received().len(), 1);
    world.stop().await;
}
