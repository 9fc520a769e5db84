//! Elicitation: forms, shown field by field, and links.

use std::collections::BTreeMap;

use anstyle::Style;
use duologue_schema::{
    CreateElicitationRequest, CreateElicitationResponse, ElicitationAcceptAction, ElicitationContentValue,
    ElicitationMode, ElicitationPropertySchema as Field, ElicitationSchema, MultiSelectItems,
    MultiSelectPropertySchema, StringPropertySchema,
};

use super::details::MARGIN;
use super::rows::Span;
use super::ui_queue::UiQueue;
use crate::ui::{BAD, BOLD, DIM, MARK};

/// Shows a request to the user. An unknown mode is declined.
pub(super) async fn elicit(request: CreateElicitationRequest, ui: &UiQueue) -> CreateElicitationResponse {
    let mut head = vec![Span::new(MARK, "? "), Span::new(BOLD, "The agent asks you:"), Span::plain("\n")];
    for line in request.message.lines() {
        // The margin shows that the text is not from this program.
        head.extend([Span::plain(MARGIN), Span::line(BOLD, line), Span::plain("\n")]);
    }
    match request.mode {
        ElicitationMode::Form(form) => fill_in(&form.requested_schema, head, ui).await,
        ElicitationMode::Url(link) => {
            let mut text = head;
            text.extend([
                Span::plain("  "),
                Span::line(MARK, &link.url),
                Span::plain("\n"),
                Span::new(DIM, "[y when you have opened it, n] "),
            ]);
            loop {
                match ui.ask(text.clone()).await.as_deref().map(str::trim) {
                    None => return CreateElicitationResponse::cancel(),
                    Some("y" | "yes") => {
                        return CreateElicitationResponse::new(ElicitationAcceptAction::new());
                    }
                    Some("n" | "no") => return CreateElicitationResponse::decline(),
                    Some(_) => {}
                }
            }
        }
        _ => CreateElicitationResponse::decline(),
    }
}

async fn fill_in(form: &ElicitationSchema, head: Vec<Span>, ui: &UiQueue) -> CreateElicitationResponse {
    let mut content = BTreeMap::new();
    for (name, field) in form.properties.iter() {
        let required = form.required.iter().flatten().any(|required| required == name);
        let mut complaint = None;
        loop {
            let mut text = head.clone();
            text.extend(question(name, field, required));
            if let Some(complaint) = complaint.take() {
                text.extend([Span::line(BAD, &format!("  {complaint}")), Span::plain("\n")]);
            }
            text.push(Span::new(DIM, "[Enter for none or the default, ! declines] "));
            let Some(line) = ui.ask(text).await else { return CreateElicitationResponse::cancel() };
            match line.trim() {
                "!" => return CreateElicitationResponse::decline(),
                "" => match default(field) {
                    Some(value) => {
                        content.insert(name.to_owned(), value);
                        break;
                    }
                    None if required => complaint = Some("it needs a value".to_owned()),
                    None => break,
                },
                line => match parse(field, line) {
                    Ok(value) => {
                        content.insert(name.to_owned(), value);
                        break;
                    }
                    Err(why) => complaint = Some(why),
                },
            }
        }
    }
    CreateElicitationResponse::accept(content)
}

fn question(name: &str, field: &Field, required: bool) -> Vec<Span> {
    let (title, description, kind) = match field {
        Field::String(field) => (&field.title, &field.description, "text"),
        Field::Number(field) => (&field.title, &field.description, "a number"),
        Field::Integer(field) => (&field.title, &field.description, "a whole number"),
        Field::Boolean(field) => (&field.title, &field.description, "y or n"),
        Field::Array(field) => (&field.title, &field.description, "several, with commas between"),
        _ => (&None, &None, "unknown"),
    };
    let star = if required { " (required)" } else { "" };
    let default = default(field).map(|value| format!(", {} by default", show(&value))).unwrap_or_default();
    let mut text = vec![
        Span::plain("  "),
        Span::line(Style::new(), title.as_deref().unwrap_or(name)),
        Span::line(DIM, &format!("{star}: {kind}{default}")),
        Span::plain("\n"),
    ];
    if let Some(description) = description {
        text.extend([Span::line(DIM, &format!("  {description}")), Span::plain("\n")]);
    }
    for (number, (_, title)) in (1..).zip(choices(field)) {
        text.extend([
            Span::new(MARK, &format!("    {number}  ")),
            Span::line(Style::new(), &title),
            Span::plain("\n"),
        ]);
    }
    text
}

fn show(value: &ElicitationContentValue) -> String {
    match value {
        ElicitationContentValue::String(text) => text.clone(),
        ElicitationContentValue::Integer(number) => number.to_string(),
        ElicitationContentValue::Number(number) => number.to_string(),
        ElicitationContentValue::Boolean(yes) => if *yes { "y" } else { "n" }.into(),
        ElicitationContentValue::StringArray(texts) => texts.join(", "),
        _ => String::new(),
    }
}

/// The values to choose from, each with its title.
fn choices(field: &Field) -> Vec<(String, String)> {
    let plain = |values: &[String]| values.iter().map(|value| (value.clone(), value.clone())).collect();
    let titled = |options: &[duologue_schema::EnumOption]| {
        options.iter().map(|option| (option.r#const.clone(), option.title.clone())).collect()
    };
    match field {
        Field::String(field) => match &**field {
            StringPropertySchema { one_of: Some(options), .. } => titled(options),
            StringPropertySchema { r#enum: Some(values), .. } => plain(values),
            _ => Vec::new(),
        },
        Field::Array(field) => match &**field {
            MultiSelectPropertySchema { items: MultiSelectItems::String(items), .. } => plain(&items.r#enum),
            MultiSelectPropertySchema { items: MultiSelectItems::Titled(items), .. } => titled(&items.any_of),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn default(field: &Field) -> Option<ElicitationContentValue> {
    match field {
        Field::String(field) => field.default.clone().map(Into::into),
        Field::Number(field) => field.default.map(Into::into),
        Field::Integer(field) => field.default.map(Into::into),
        Field::Boolean(field) => field.default.map(Into::into),
        Field::Array(field) => field.default.clone().map(Into::into),
        _ => None,
    }
}

/// Parses the line for a field. The error says what is wrong with it.
fn parse(field: &Field, line: &str) -> Result<ElicitationContentValue, String> {
    let choices = choices(field);
    let choice = |text: &str| {
        let by_number = text.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
        let chosen = choices.iter().find(|(value, _)| value == text).or(by_number);
        chosen.map(|(value, _)| value.clone()).ok_or_else(|| format!("there is no choice {text}"))
    };
    let value: ElicitationContentValue = match field {
        Field::String(_) if !choices.is_empty() => choice(line)?.into(),
        Field::String(_) => line.into(),
        Field::Integer(_) => line.parse::<i64>().map_err(|_| "not a whole number")?.into(),
        Field::Number(_) => {
            let number = line.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or("not a number")?.into()
        }
        Field::Boolean(_) => match line.to_lowercase().as_str() {
            "y" | "yes" | "true" => true.into(),
            "n" | "no" | "false" => false.into(),
            _ => return Err("expected y or n".into()),
        },
        Field::Array(_) => {
            line.split(',').map(|text| choice(text.trim())).collect::<Result<Vec<_>, _>>()?.into()
        }
        _ => return Err("this field is of an unknown kind".into()),
    };
    field.check(&value)?;
    Ok(value)
}
