//! Clients of a hub that are known by their certificates.
#![cfg(all(unix, feature = "serve", feature = "tls"))]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::process::{DUOLOGUE, run, shown};
use crate::served::Server;

/// An authority that signs certificates, with its own in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).expect("a certificate").pem()).expect("a file");
        Authority { issuer: Issuer::new(params, key), file }
    }

    /// Signs a certificate with these names, and writes it and its key into files.
    fn sign(&self, folder: &Path, file: &str, names: &[&str]) -> [PathBuf; 2] {
        let names = names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let params = CertificateParams::new(names).expect("names");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = ["crt", "key"].map(|kind| folder.join(format!("{file}.{kind}")));
        std::fs::write(&files[0], certificate.pem()).expect("a file");
        std::fs::write(&files[1], key.serialize_pem()).expect("a file");
        set_mode(&files[1], 0o600);
        files
    }
}

fn set_mode(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

const HUB: &str = r#"
[[agents]]
id = "writer"
command = ["DUOLOGUE", "mock"]
roots = ["/"]
trust = "shared"

[[principals]]
id = "alice"
certificate = "alice.example.org"
roles = ["user"]

[[principals]]
id = "bob"
certificate = "bob.example.org"

[[rules]]
role = "user"
actions = ["discover", "session"]
agents = ["writer"]
"#;

#[test]
fn a_certificate_is_the_key_of_its_principal() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (ours, other) = (Authority::new(folder, "ours"), Authority::new(folder, "other"));
    let [certificate, key] = ours.sign(folder, "server", &["localhost"]);
    let config = folder.join("hub.toml");
    std::fs::write(&config, HUB.replace("DUOLOGUE", DUOLOGUE)).expect("a file");
    let serve = |more: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
        command.arg("--data").arg(folder.join("data")).arg("--cert").arg(&certificate);
        command.arg("--key").arg(&key).args(more);
        command
    };
    let refused = shown(&run(&mut serve(&[]), ""));
    assert!(refused.contains("use `--client-ca`") && refused.ends_with("exit 2"), "{refused}");
    let mut server = Server::of(&mut serve(&["--client-ca", ours.file.to_str().expect("UTF-8")]));
    let hub = server.url.strip_suffix("/acp").expect("the path").replace("127.0.0.1", "localhost");
    let agents = |files: Option<&[PathBuf; 2]>| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["agents", "--hub", &hub, "--ca-file"]).arg(&ours.file);
        if let Some([certificate, key]) = files {
            command.arg("--client-cert").arg(certificate).arg("--client-key").arg(key);
        }
        shown(&run(&mut command, ""))
    };
    let alice = ours.sign(folder, "alice", &["laptop.example.org", "Alice.example.org"]);
    let found = agents(Some(&alice));
    assert!(found.contains("writer") && found.ends_with("exit 0"), "{found}");
    // A key that others may read is not used.
    set_mode(&alice[1], 0o640);
    let refused = agents(Some(&alice));
    assert!(refused.contains("alice.key") && refused.contains("(mode 640)"), "{refused}");
    assert!(refused.ends_with("exit 2"), "{refused}");
    set_mode(&alice[1], 0o600);
    // A principal without a rule is known, and finds nothing.
    let found = agents(Some(&ours.sign(folder, "bob", &["bob.example.org"])));
    assert!(!found.contains("writer") && found.ends_with("exit 0"), "{found}");
    for (names, reason) in [
        (&["carol.example.org"][..], "carol.example.org"),
        (&["*.example.org"], "no principal has a name of this certificate"),
        (&["alice.example.org", "bob.example.org"], "no principal has a name of this certificate"),
    ] {
        let refused = agents(Some(&ours.sign(folder, "unknown", names)));
        assert!(refused.contains(reason) && refused.ends_with("exit 1"), "{names:?}: {refused}");
    }
    let refused = agents(None);
    assert!(refused.contains("send a key") && refused.ends_with("exit 1"), "{refused}");
    let forged = agents(Some(&other.sign(folder, "forged", &["alice.example.org"])));
    assert!(!forged.contains("writer") && !forged.ends_with("exit 0"), "{forged}");
    let mut command = Command::new(DUOLOGUE);
    command.args(["run", "hello", "--", DUOLOGUE, "connect", "--ca-file"]).arg(&ours.file);
    command.arg("--client-cert").arg(&alice[0]).arg("--client-key").arg(&alice[1]);
    let hello = shown(&run(command.arg(format!("{hub}/acp/writer")), ""));
    assert!(hello.contains("Hello!") && hello.ends_with("exit 0"), "{hello}");
    server.stop();
}
