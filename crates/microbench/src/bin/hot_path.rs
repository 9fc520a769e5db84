//! `hot-path NAME` goes one hot path, and says for how many items; without a name, which there are.

use std::process::ExitCode;

use duologue_microbench::{counted, paths};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program")]
fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        paths().for_each(|path| println!("{}", path.name));
        return ExitCode::SUCCESS;
    };
    let Some(path) = paths().find(|path| path.name == name) else {
        eprintln!("{name}: no such path; without a name they are listed");
        return ExitCode::FAILURE;
    };
    let mut work = path.prepare();
    // One-time initialization of the process is not counted.
    work();
    counted(&mut work, path.runs());
    println!("{}", path.runs() * path.items());
    ExitCode::SUCCESS
}
