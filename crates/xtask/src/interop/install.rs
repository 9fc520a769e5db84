//! Installs the foreign SDKs, by package name and version, under `target/`, and knows how to start each program.

use super::{InteropPaths, OURS, Result, finish};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
/// Building in release mode takes a while on a small machine.
pub(crate) const BUILD: Duration = Duration::from_secs(1800);

/// Makes the agents and clients on the three SDKs ready to run.
pub(super) fn peers(paths: &InteropPaths) -> Result<()> {
    std::thread::scope(|scope| {
        let official =
            scope.spawn(|| rust_network(paths).and(rust(paths)).map_err(|error| error.to_string()));
        ts(paths)?;
        for version in ["python", "python-1"] {
            python(&paths.sources.join(version), &paths.target.join(version))?;
        }
        official.join().map_err(|_| "building the Rust peers panicked")??;
        Ok(())
    })
}

/// Builds all programs on the official Rust SDK, for release: interop, scenarios and benchmark share them.
pub(crate) fn rust(paths: &InteropPaths) -> Result<PathBuf> {
    let mut cargo = crate::target::cargo();
    cargo.args(["build", "--release", "--quiet", "--locked", "--bins", "--manifest-path"]);
    cargo.arg(paths.sources.join("rust/Cargo.toml")).arg("--target-dir").arg(paths.target.join("rust"));
    finish(&mut cargo, BUILD)?;
    Ok(rust_programs(paths))
}

/// Builds the agent and the client of the stable surface on the official Rust SDK.
fn rust_network(paths: &InteropPaths) -> Result<()> {
    finish(network_package(paths).args(["--bin", "interop-agent", "--bin", "interop-client"]), BUILD)
}

/// Builds the agent and the client of the benchmark over a network on the official Rust SDK, in the profile `debug` or
/// `release`. Returns their folder.
pub(crate) fn rust_network_bench(paths: &InteropPaths, profile: &str) -> Result<PathBuf> {
    let mut cargo = network_package(paths);
    if profile == "release" {
        cargo.arg("--release");
    }
    finish(cargo.args(["--bin", "bench-agent", "--bin", "bench-client"]), BUILD)?;
    Ok(paths.target.join("rust-network").join(profile))
}

fn network_package(paths: &InteropPaths) -> Command {
    let mut cargo = crate::target::cargo();
    cargo.args(["build", "--quiet", "--locked", "--manifest-path"]);
    cargo.arg(paths.sources.join("rust-network/Cargo.toml"));
    cargo.arg("--target-dir").arg(paths.target.join("rust-network"));
    cargo
}

fn rust_programs(paths: &InteropPaths) -> PathBuf {
    paths.target.join("rust/release")
}

/// Makes the programs on the TypeScript SDK ready to run.
pub(crate) fn ts(paths: &InteropPaths) -> Result<()> {
    let (source, target) = (paths.sources.join("ts"), paths.target.join("ts"));
    npm(&source, &target)?;
    for entry in fs::read_dir(&source)? {
        let program = entry?.path();
        if let (Some(name), true) =
            (program.file_name(), program.extension().is_some_and(|kind| kind == "mjs"))
        {
            fs::copy(&program, target.join(name))?;
        }
    }
    Ok(())
}

/// Writes the schemas of the newest version of the published crate, and returns their folder and that version.
pub(super) fn published_schemas(paths: &InteropPaths) -> Result<(PathBuf, String)> {
    let folder = std::path::absolute(paths.target.join("schema"))?;
    // The copy has the lock file, which cargo writes beside the manifest.
    for file in ["Cargo.toml", "src/main.rs"] {
        let copy = folder.join(file);
        fs::create_dir_all(copy.parent().unwrap_or(&copy))?;
        fs::copy(paths.sources.join("schema").join(file), copy)?;
    }
    let cargo = |command: &str| {
        let mut cargo = crate::target::cargo();
        cargo.args([command, "--quiet", "--manifest-path"]).arg(folder.join("Cargo.toml"));
        cargo
    };
    finish(&mut cargo("update"), LIMIT)?;
    for (part, features) in [("stable", &[][..]), ("unstable", &["--features", "unstable"])] {
        let mut run = cargo("run");
        run.args(features).arg("--target-dir").arg(folder.join("target"));
        finish(run.arg("--").arg(folder.join(part)), BUILD)?;
    }
    let lock = fs::read_to_string(folder.join("Cargo.lock"))?;
    let package = lock.split("name = \"agent-client-protocol-schema\"\nversion = \"").nth(1);
    let version = package.and_then(|rest| rest.split('"').next()).ok_or("the lock file has no version")?;
    Ok((folder, version.to_owned()))
}

/// The command that starts the agent or client on one SDK.
pub(super) fn program(paths: &InteropPaths, sdk: &str, role: &str) -> Result<Command> {
    let absolute = |path: PathBuf| std::path::absolute(path);
    Ok(match sdk {
        OURS => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(format!("interop-{role}"));
            command
        }
        "rust" if matches!(role, "agent" | "client") => {
            Command::new(absolute(paths.target.join(format!("rust-network/debug/interop-{role}")))?)
        }
        "rust" => Command::new(absolute(rust_programs(paths).join(format!("interop-{role}")))?),
        "ts" => {
            let mut command = Command::new("node");
            command.arg(absolute(paths.target.join(format!("ts/{role}.mjs")))?);
            command
        }
        // The programs on the Python SDK are the same for each of its versions.
        _ => {
            let mut command = Command::new(absolute(paths.target.join(sdk).join("venv/bin/python"))?);
            command.arg(absolute(paths.sources.join(format!("python/{role}.py")))?);
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
    })
}

/// Installs the packages of `source/package.json` into `target`, unless that was done before.
pub(crate) fn npm(source: &Path, target: &Path) -> Result<()> {
    once(&source.join("package.json"), &target.join("package.json"), || {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]);
        finish(npm.current_dir(target), LIMIT)
    })
}

pub(crate) fn python(source: &Path, target: &Path) -> Result<()> {
    once(&source.join("requirements.txt"), &target.join("requirements.txt"), || {
        finish(Command::new("python3").args(["-m", "venv"]).arg(target.join("venv")), LIMIT)?;
        let mut pip = Command::new(target.join("venv/bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(target.join("requirements.txt"));
        finish(&mut pip, LIMIT)
    })
}

/// The command that starts the example agent in the sources of the official Python SDK.
pub(super) fn python_example(paths: &InteropPaths) -> Result<String> {
    let dir = std::path::absolute(paths.target.join("python"))?;
    python(&paths.sources.join("python"), &dir)?;
    let examples = dir.join("sources");
    once(&paths.sources.join("python/requirements.txt"), &examples.join("requirements.txt"), || {
        let mut pip = Command::new(dir.join("venv/bin/pip"));
        pip.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]);
        pip.arg("--dest").arg(&examples).arg("-r").arg(dir.join("requirements.txt"));
        finish(&mut pip, LIMIT)?;
        let archive = fs::read_dir(&examples)?.filter_map(|entry| Some(entry.ok()?.path()));
        let archive = archive.into_iter().find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("agent_client_protocol") && name.ends_with(".gz")
        });
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--strip-components=1", "--directory"]).arg(&examples);
        finish(tar.arg("--file").arg(archive.ok_or("pip downloaded no archive")?), LIMIT)
    })?;
    Ok(format!("{} {}", dir.join("venv/bin/python").display(), examples.join("examples/agent.py").display()))
}

/// Builds the `duologue` command and returns its path.
pub(super) fn duologue() -> Result<PathBuf> {
    let mut cargo = crate::target::cargo();
    finish(cargo.args(["build", "--quiet", "--package", "duologue-cli"]), LIMIT)?;
    // Beside this program, whatever the target folder is called.
    Ok(std::env::current_exe()?.with_file_name("duologue"))
}

/// Copies a manifest and runs `install`; a copy already there means that it was done.
pub(crate) fn once(manifest: &Path, copy: &Path, install: impl FnOnce() -> Result<()>) -> Result<()> {
    if fs::read(copy).ok() == Some(fs::read(manifest)?) && copy.with_extension("done").exists() {
        return Ok(());
    }
    fs::create_dir_all(copy.parent().unwrap_or(copy))?;
    fs::copy(manifest, copy)?;
    let _ = fs::remove_file(copy.with_extension("done"));
    install()?;
    fs::write(copy.with_extension("done"), "")?;
    Ok(())
}
