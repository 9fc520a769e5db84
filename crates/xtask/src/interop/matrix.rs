//! The output of a run: a table of cells, the notes below it, and the number of those that are bad.

use std::fmt::{Display, Write as _};

use super::Result;

/// A table and its notes.
#[derive(Default)]
pub(super) struct Matrix {
    table: String,
    notes: String,
    bad: usize,
}

impl Matrix {
    pub(super) fn note(&mut self, note: impl Display) {
        let _ = writeln!(self.notes, "{note}");
    }

    /// Adds a note of something bad.
    pub(super) fn problem(&mut self, problem: impl Display) {
        self.bad += 1;
        self.note(problem);
    }

    /// Adds a note if a check has succeeded, or a problem.
    pub(super) fn check(&mut self, outcome: Result<String>) {
        match outcome {
            Ok(found) => self.note(found),
            Err(problem) => self.problem(problem),
        }
    }

    /// Adds the rows of the table. Each column has a head of two lines. `cell` says what to print in a row of a
    /// column, and the problem if it is one.
    pub(super) fn rows<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a str> + Clone,
        heads: &[[String; 2]],
        cell: impl Fn(usize, &str) -> (&'static str, Option<String>),
    ) {
        let width = rows.clone().map(str::len).max().unwrap_or_default();
        let column = heads.iter().flatten().map(String::len).max().unwrap_or_default().max(15);
        let line = |row: &str, cells: Vec<&str>| {
            let cells: String = cells.iter().map(|cell| format!("  {cell:column$}")).collect();
            format!("{row:width$}{cells}").trim_end().to_owned() + "\n"
        };
        for number in [0, 1] {
            self.table += &line("", heads.iter().map(|head| head[number].as_str()).collect());
        }
        for row in rows {
            let mut cells = Vec::new();
            for (column, head) in heads.iter().enumerate() {
                let (cell, problem) = cell(column, row);
                cells.push(cell);
                if let Some(problem) = problem {
                    self.problem(format_args!("{}: {row}: {problem}", head.join(" ")));
                }
            }
            self.table += &line(row, cells);
        }
    }

    /// Prints everything, and fails if something is bad: so many things `of` the run.
    #[expect(clippy::print_stdout, reason = "this is the program's output")]
    pub(super) fn finish(self, of: &str) -> Result<()> {
        println!("{}\n{}", self.table, self.notes);
        if self.bad > 0 { Err(format!("{} things {of} are bad", self.bad).into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_has_aligned_columns_and_counts_its_problems() {
        let mut matrix = Matrix::default();
        let heads = [["ours drives".into(), "theirs".into()], ["theirs drives".into(), "ours".into()]];
        matrix.rows(["ping", "session/new"].into_iter(), &heads, |column, row| match (column, row) {
            (1, "ping") => ("FAIL", Some("no answer".into())),
            _ => ("ok", None),
        });
        matrix.check(Ok("all valid".into()));
        let lines = [
            "             ours drives      theirs drives",
            "             theirs           ours",
            "ping         ok               FAIL",
            "session/new  ok               ok",
        ];
        assert_eq!(matrix.table.lines().collect::<Vec<_>>(), lines);
        assert_eq!(matrix.notes, "theirs drives ours: ping: no answer\nall valid\n");
        assert_eq!(matrix.finish("here").unwrap_err().to_string(), "1 things here are bad");
    }
}
