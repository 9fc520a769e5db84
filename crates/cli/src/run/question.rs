//! The text of a question: as much as the window has room for, and the rest page by page.

use std::iter;

use duologue_schema::{PermissionOption, ToolCall};

use super::details::{self, DetailLine, Details};
use super::rows::{RowWidths, Span, WrappedRow, hanging, wrap};
use super::screen::WindowSize;
use crate::ui::{BAD, DIM, MARK, plural};

/// A question that the user answers with a line.
#[derive(Clone, Debug, Default)]
pub(super) struct QuestionText {
    /// The question in our words.
    head: Vec<Span>,
    /// The description of the tool call, in the agent's words.
    details: Details,
    choices: Vec<DetailLine>,
    /// The reason for which the last answer was rejected.
    complaint: Option<String>,
    /// The starts of the pages that the user turned to: a line, and a row of it.
    pages: Vec<(usize, usize)>,
    /// True if the next empty line was meant for another question.
    ignores_enter: bool,
}

impl From<Vec<Span>> for QuestionText {
    fn from(head: Vec<Span>) -> Self {
        QuestionText { head, ..QuestionText::default() }
    }
}

impl QuestionText {
    /// Creates a question with numbered answers. The tool call is [added](Self::describe) when it is
    /// shown.
    pub(super) fn choose(head: &str, options: &[PermissionOption], complaint: Option<String>) -> Self {
        let choices = (1..).zip(options).map(|(number, option)| details::option(number, option)).collect();
        let head = vec![Span::new(MARK, "? "), Span::plain(head)];
        QuestionText { head, choices, complaint, ..QuestionText::default() }
    }

    pub(super) fn describe(&mut self, call: &ToolCall) {
        self.details = Details::of(call);
    }

    /// Returns true if the user reads a page of it.
    pub(super) fn is_paging(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Ignores the next line if it is empty. The user was turning pages of a question that this one replaces.
    pub(super) fn ignore_enter(&mut self) {
        self.ignores_enter = true;
    }

    pub(super) fn clear(&mut self) {
        *self = QuestionText::default();
    }

    /// Returns the text for a terminal that cannot move its cursor.
    pub(super) fn flat(&self, size: WindowSize) -> String {
        self.rows(size, false).join("\n")
    }

    /// Returns the rows to draw. With choices there are at most as many as the window has.
    pub(super) fn rows(&self, size: WindowSize, colours: bool) -> Vec<String> {
        let layout = Layout { size, width: size.width.saturating_sub(1).max(1), colours };
        if self.choices.is_empty() {
            let mut rows = layout.wrapped(&self.head);
            if let Some(complaint) = &self.complaint {
                rows.splice(..0, layout.wrapped(&[Span::line(BAD, complaint)]));
            }
            return rows;
        }
        match self.pages.last() {
            Some(&from) => self.page(from, &layout),
            None => self.front(&layout),
        }
    }

    /// Turns the page if the line demands that. `v` opens the first page and closes any. An empty line never
    /// answers a question with choices, since it turns pages.
    pub(super) fn turn_page(&mut self, line: &str, size: WindowSize) -> bool {
        let layout = Layout { size, width: size.width.saturating_sub(1).max(1), colours: false };
        let ignores_enter = std::mem::take(&mut self.ignores_enter);
        match (line.trim(), self.pages.last()) {
            ("", None) if ignores_enter => {
                self.complaint = Some("that Enter was meant for the question before".to_owned());
            }
            ("", None) if !self.choices.is_empty() => {}
            ("v", None) if !self.choices.is_empty() => self.pages.push((0, 0)),
            ("", Some(&from)) => match self.fill(from, layout.page_rows(), &layout).1 {
                (line, _) if line >= self.len() => self.pages.clear(),
                next => self.pages.push(next),
            },
            ("b", Some(_)) => {
                self.pages.pop();
            }
            ("q" | "v", Some(_)) => self.pages.clear(),
            _ => return false,
        }
        true
    }

    /// Returns the question with as many lines of the description as fit.
    fn front(&self, layout: &Layout) -> Vec<String> {
        let room = layout.size.height.saturating_sub(1);
        let mut rows = layout.wrapped(&self.head);
        let mut choices = Vec::new();
        let mut cut_choices = 0;
        for (index, choice) in self.choices.iter().enumerate() {
            let choice = layout.hanging(choice);
            if choices.len() + choice.len() > (room / 2).max(1) {
                cut_choices = self.choices.len() - index;
                break;
            }
            choices.extend(choice);
        }
        if cut_choices > 0 {
            let text = format!("  … {}; enter v to view all", plural(cut_choices, "more answer"));
            choices.extend(layout.wrapped(&[Span::new(BAD, &text)]));
        }
        if let Some(complaint) = &self.complaint {
            choices.extend(layout.one_row(&[Span::line(BAD, &format!("  {complaint}"))]));
        }
        let space = room.saturating_sub(rows.len() + choices.len() + 1);
        let total = self.details.lines.len();
        let (mut lines, end) = self.fill_to((0, 0), space, total, layout);
        let mut shown = end.0;
        let is_cut = shown < total || self.details.left_out > 0;
        if is_cut && lines.len() >= space {
            (lines, (shown, _)) = self.fill_to((0, 0), space.saturating_sub(1), total, layout);
        }
        rows.extend(lines);
        if is_cut {
            let text = format!(
                "… {}; enter v to view all",
                plural(total - shown + self.details.left_out, "more line")
            );
            rows.extend(layout.one_row(&[Span::new(BAD, &text)]));
        }
        rows.extend(choices);
        let view = if is_cut || cut_choices > 0 { ", v" } else { "" };
        rows.extend(layout.one_row(&[Span::new(DIM, &format!("[{}{view}] ", self.answers()))]));
        rows
    }

    /// Returns one page of the description and the answers.
    fn page(&self, from: (usize, usize), layout: &Layout) -> Vec<String> {
        let (mut rows, next) = self.fill(from, layout.page_rows(), layout);
        let last = next.0.max(from.0 + 1).min(self.len());
        let enter = if next.0 >= self.len() { "Enter: the question" } else { "Enter: next page" };
        let range = format!("lines {}-{last} of {}", from.0 + 1, self.len());
        rows.extend(layout.one_row(&[Span::new(MARK, &range)]));
        let keys = format!("[{enter}, b: back, q: the question, {}] ", self.answers());
        rows.extend(layout.one_row(&[Span::new(DIM, &keys)]));
        rows
    }

    fn answers(&self) -> String {
        format!("1-{}, y, n", self.choices.len())
    }

    fn left_out(&self) -> Option<DetailLine> {
        let count = self.details.left_out;
        let text =
            format!("… {} that this command cannot show; --record keeps them", plural(count, "more line"));
        (count > 0).then(|| details::remark(&text))
    }

    fn len(&self) -> usize {
        self.details.lines.len() + usize::from(self.details.left_out > 0) + self.choices.len()
    }

    fn fill(&self, from: (usize, usize), room: usize, layout: &Layout) -> (Vec<String>, (usize, usize)) {
        self.fill_to(from, room, self.len(), layout)
    }

    /// Fills rows from a place on, up to the line `end`, and returns where the next row begins.
    fn fill_to(
        &self,
        (first, skipped): (usize, usize),
        room: usize,
        end: usize,
        layout: &Layout,
    ) -> (Vec<String>, (usize, usize)) {
        let mut rows = Vec::new();
        let left_out = self.left_out();
        let lines = self.details.lines.iter().chain(&left_out).chain(&self.choices);
        let mut skip = skipped;
        for (index, line) in lines.enumerate().take(end).skip(first) {
            let of_line = layout.hanging(line);
            // At least one row is left if the window has changed since.
            let start = skip.min(of_line.len().saturating_sub(1));
            for (row, text) in of_line.into_iter().enumerate().skip(start) {
                if rows.len() >= room {
                    return (rows, (index, row));
                }
                rows.push(text);
            }
            skip = 0;
        }
        (rows, (end, 0))
    }
}

struct Layout {
    size: WindowSize,
    width: usize,
    colours: bool,
}

impl Layout {
    /// Returns the number of rows of a page without its last two.
    fn page_rows(&self) -> usize {
        self.size.height.saturating_sub(3).max(1)
    }

    fn wrapped(&self, spans: &[Span]) -> Vec<String> {
        hanging(spans, self.width, self.colours)
    }

    fn one_row(&self, spans: &[Span]) -> impl Iterator<Item = String> + use<> {
        self.wrapped(spans).into_iter().take(1)
    }

    /// Returns the rows of a line, each behind its margin.
    fn hanging(&self, line: &DetailLine) -> Vec<String> {
        let [first, further] = line.margins;
        let margin = first.chars().count().max(further.chars().count());
        let widths = RowWidths::all(self.width.saturating_sub(margin));
        let mut rows = wrap(&line.spans, 0, widths, self.colours);
        if rows.is_empty() {
            rows.push(WrappedRow { text: String::new(), end: 0, begins_line: true });
        }
        let margins = iter::once(first).chain(iter::repeat(further));
        margins.zip(rows).map(|(margin, row)| format!("{margin}{}", row.text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use duologue_schema::{PermissionOption, PermissionOptionKind};

    use super::QuestionText;
    use crate::run::screen::WindowSize;

    #[test]
    fn enter_turns_pages_and_never_answers() {
        let size = WindowSize { width: 80, height: 10 };
        let option = PermissionOption::new("yes", "Yes", PermissionOptionKind::AllowOnce);
        let mut question = QuestionText::choose("May it do this?", &[option], None);
        let first = question.rows(size, false);
        for line in ["", " ", "\t"] {
            assert!(question.turn_page(line, size), "{line:?}");
            assert_eq!(question.rows(size, false), first);
        }
        assert!(question.turn_page("v", size) && question.is_paging());
        // The last page leads back.
        assert!(question.turn_page("", size) && !question.is_paging());
        assert!(question.turn_page("", size));
        for answer in ["1", "y", "n", "b", "q", "no"] {
            assert!(!question.turn_page(answer, size), "{answer}");
        }
    }

    /// A question without choices takes an empty line, but not one that was typed for the question before.
    #[test]
    fn an_enter_for_another_question_is_ignored_once() {
        let size = WindowSize { width: 80, height: 10 };
        let mut form = QuestionText::from(vec![super::Span::plain("Name: ")]);
        assert!(!form.turn_page("", size));
        form.ignore_enter();
        assert!(form.turn_page("", size));
        assert_eq!(form.rows(size, false), ["that Enter was meant for the question before", "Name: "]);
        assert!(!form.turn_page("", size));
        form.ignore_enter();
        assert!(!form.turn_page("yes", size) && !form.turn_page("", size));
    }
}
