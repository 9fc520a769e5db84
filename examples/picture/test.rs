//! The picture example as a process: its output, and the image that it saves.

use std::process::Command;

#[test]
fn it_paints_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sunset.ppm");
    let output = Command::new(env!("CARGO_BIN_EXE_picture")).arg(&file).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(String::from_utf8(output.stdout).expect("text"), @r"
    Painter paints image/x-portable-pixmap
    row 1 of 3
    row 2 of 3
    row 3 of 3
    Done: Paint a sunset
    image/x-portable-pixmap: 47 bytes
    ");
    let image = std::fs::read(file).expect("the image");
    assert!(image.starts_with(b"P6 4 3 255\n") && image.len() == 11 + 4 * 3 * 3);
}
