//! `cargo xtask schema`: writes the JSON Schema and the table of methods, made from the types.

use std::error::Error;
use std::path::Path;

/// Writes the generated files. With `--check` it lists those that are out of date.
pub(crate) fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err("cargo xtask schema [--check]".into()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, text) in duologue_schema::export::files() {
        let file = root.join(&path);
        if std::fs::read_to_string(&file).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            return Err(
                format!("{path} is out of date; run `cargo xtask schema` and commit the result").into()
            );
        }
        std::fs::create_dir_all(file.parent().unwrap_or(&root))?;
        std::fs::write(&file, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_generated_files_are_up_to_date() {
        super::run(&["--check".to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    }
}
