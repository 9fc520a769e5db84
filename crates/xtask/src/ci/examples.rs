//! The examples, as programs: each prints a line that shows that it works.

use std::process::Command;

use super::steps::{passes, root};
use crate::interop::Result;

/// A text that an example prints, and the programs: the example and its agent, if it takes one.
const EXAMPLES: [(&str, &[&str]); 9] = [
    ("[end_turn]", &["one-shot", "drafting-agent"]),
    ("[end_turn]", &["one-shot", "echo-agent"]),
    ("[end_turn]", &["one-shot", "tool-agent"]),
    ("cleared", &["one-shot"]),
    ("notes.txt: REMEMBER THE MILK", &["editor"]),
    ("5 words", &["extension"]),
    ("The car is bought for $16,500.", &["car-purchase"]),
    ("wrote features/login/validation.md", &["workflow"]),
    ("image/x-portable-pixmap: 47 bytes", &["picture"]),
];

/// Builds and runs all examples.
pub(super) fn run() -> Result<()> {
    passes(crate::target::cargo().args(["build", "--quiet", "-p", "duologue-examples"]).current_dir(root()))?;
    let folder = crate::target::folder().join("debug");
    for (text, programs) in EXAMPLES {
        let mut paths = programs.iter().map(|program| folder.join(program));
        let mut command = Command::new(paths.next().unwrap_or_default());
        let output = command.args(paths).current_dir(root()).output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !printed.contains(text) {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(
                format!("{command:?} did not print {text:?}\n{printed}{stderr}{}", output.status).into()
            );
        }
    }
    Ok(())
}
