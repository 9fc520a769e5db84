//! Tests of the configuration.

use duologue_schema::{PermissionOption, ToolCallUpdate};

use super::*;
use crate::secret_source::tests::secret_file;

#[test]
fn a_rule_or_role_without_effect_is_refused() {
    let agent = "[[agents]]\nid = \"writer\"\ncommand = [\"a\"]\ntrust = \"shared\"\n";
    let principal = |role: &str| {
        let key = "0".repeat(64);
        format!("[[principals]]\nid = \"p\"\nagent = \"polls\"\nkey_sha256 = {key:?}\nroles = [{role:?}]\n")
    };
    let rule = |agent: &str, action: &str| {
        format!("[[rules]]\nrole = \"user\"\nactions = [{action:?}]\nagents = [{agent:?}]\n")
    };
    for (role, agent_of_rule, action, fault) in [
        ("user", "writer", "discover", ""),
        ("user", "polls", "task", ""),
        ("admin", "*", "operate", ""),
        ("user", "writer", "task", "the agent \"writer\" by its role \"user\", and may not discover it"),
        ("user", "*", "message", "may not discover it"),
        ("user", "writer", "operate", "`operate` for single agents"),
        ("usr", "writer", "task", "\"p\" has the role \"usr\""),
        ("user", "witer", "discover", "names the agent \"witer\""),
    ] {
        let text = format!("{agent}{}{}", principal(role), rule(agent_of_rule, action));
        let config: GatewayConfig = toml::from_str(&text).unwrap();
        let refused = config.check().err().unwrap_or_default();
        assert!(refused.contains(fault) && refused.is_empty() == fault.is_empty(), "{text}: {refused}");
    }
}

#[test]
fn no_agent_of_the_file_is_the_operator() {
    for address in
        ["command = [\"a\"]", "url = \"wss://a.example/acp\"\ncwd = \"/\"", "rest = \"https://a.example\""]
    {
        let text = |id: &str| format!("[[agents]]\nid = {id:?}\n{address}\n");
        let check = |id: &str| toml::from_str::<GatewayConfig>(&text(id)).unwrap().check();
        check("operators").unwrap();
        let refused = check("operator").unwrap_err();
        assert!(refused.contains("agents.id is \"operator\"") && refused.contains("inbox"), "{refused}");
    }
}

#[test]
fn a_principal_has_no_name_of_another_one() {
    let key = |digit: char| digit.to_string().repeat(64);
    for (id, more, fault) in [
        ("team/ada", "", ""),
        ("polls", "agent = \"polls\"", ""),
        ("alice/ada", "", "and another one is \"alice\""),
        ("local/ada", "", "and another one is \"local\""),
        ("b", "agent = \"alice\"", "which is the id of another principal"),
        ("b", "agent = \"corp\"", "\"corp\", which is the name of a token provider"),
        ("b", "agent = \"operator\"", "`operator` is the inbox"),
        ("b", "agent = \"*\"", "principals.agent of \"b\" is \"*\""),
        ("..", "", "principals.id is \"..\""),
        ("bob\u{2800}", "", "visible characters"),
        ("corp", "", "the name of a token provider"),
    ] {
        let text = format!(
            "[[principals]]\nid = \"alice\"\nkey_sha256 = {:?}\n\
             [[principals]]\nid = {id:?}\nkey_sha256 = {:?}\n{more}\n\
             [[token_providers]]\nname = \"corp\"\nissuer = \"https://corp.example\"\naudience = \"hub\"\nkeys_url = \"https://corp.example/keys\"",
            key('a'),
            key('b')
        );
        let config: GatewayConfig = toml::from_str(&text).unwrap();
        let refused = config.check().err().unwrap_or_default();
        assert!(refused.contains(fault) && refused.is_empty() == fault.is_empty(), "{text}: {refused}");
    }
}

#[test]
fn an_agent_works_on_one_task_and_one_message_at_least() {
    for (setting, is_valid) in
        [("max_messages = 1", true), ("max_messages = 0", false), ("max_tasks = 0", false)]
    {
        let text = format!("[[agents]]\nid = \"writer\"\ncommand = [\"a\"]\n{setting}\n");
        let config: GatewayConfig = toml::from_str(&text).unwrap();
        let refused = config.check().err();
        let name = setting.split(' ').next().unwrap();
        assert!(refused.as_ref().is_none_or(|refused| refused.contains(name)), "{refused:?}");
        assert_eq!(refused.is_none(), is_valid, "{setting}");
    }
}

/// Each text ends with what to do about it.
#[test]
fn a_refused_value_has_its_setting_and_its_remedy() {
    let agent = |more: &str| format!("[[agents]]\nid = \"writer\"\ntrust = \"shared\"\n{more}\n");
    let command = agent("command = [\"a\"]");
    let principal = |id: &str, more: &str| format!("[[principals]]\nid = {id:?}\n{more}\n");
    let key = |digit: char| format!("key_sha256 = {:?}", digit.to_string().repeat(64));
    let alice = principal("alice", &key('a'));
    let provider = |name: &str, issuer: &str, keys: &str| {
        format!(
            "[[token_providers]]\nname = {name:?}\nissuer = {issuer:?}\naudience = \"hub\"\nkeys_url = {keys:?}\n"
        )
    };
    let corp = provider("corp", "https://corp.example", "https://corp.example/keys");
    let rule =
        |role: &str, agent: &str| format!("[[rules]]\nrole = {role:?}\nactions = []\nagents = [{agent:?}]\n");
    for (text, setting) in [
        (format!("{command}{command}"), "agents.id"),
        (agent("command = [\"a\"]\nmax_tasks = 0"), "agents.max_tasks"),
        (agent(""), "command"),
        (agent("command = [\"a\"]\nurl = \"wss://a.example\""), "command, url and rest"),
        (agent("url = \"wss://a.example\""), "`cwd`"),
        (agent("url = \"wss://a.example\"\ncwd = \"/\"\nroots = [\"/\"]"), "roots"),
        (agent("rest = \"https://a.example/?a\""), "rest"),
        (agent("rest = \"https://a.example\"\ncwd = \"/\""), "cwd"),
        (agent("command = [\"a\"]\nauth = { env = \"A\" }"), "auth"),
        (agent("rest = \"https://a.example\"\nauth = { command = [] }"), "auth"),
        (agent("url = \"ws://a.example\"\ncwd = \"/\"\nauth = { env = \"A\" }"), "auth"),
        (principal("..", ""), "principals.id"),
        (format!("{alice}{}", principal("alice", &key('b'))), "principals"),
        (format!("{alice}{}", principal("bob", &key('a'))), "key_sha256"),
        (principal("bob", "key_sha256 = \"a\""), "key_sha256"),
        (principal("bob", ""), "key_sha256"),
        (principal("bob", "certificate = \"*.example\""), "certificate"),
        (["bob", "eve"].map(|id| principal(id, "certificate = \"a.example\"")).concat(), "certificate"),
        (principal("bob", "certificate = \"a.example\"\nkey_expires = \"2027\""), "key_expires"),
        (principal("bob", &format!("{}\nkey_expires = \"2027\"", key('b'))), "key_expires"),
        (format!("{alice}{}", principal("alice/b", &key('b'))), "principals.id"),
        (
            format!("{alice}{}", principal("b", &format!("{}\nagent = \"alice\"", key('b')))),
            "principals.agent",
        ),
        (format!("{corp}{}", principal("corp", &key('b'))), "principals.id"),
        (format!("{corp}{}", principal("corp/b", &key('b'))), "principals.id"),
        (format!("{corp}{corp}"), "token_providers"),
        (corp.clone() + &corp.replace("\"corp\"", "\"other\""), "issuer"),
        (provider("a b", "a", "https://a.example"), "token_providers.name"),
        (provider("corp", "", "https://a.example"), "issuer"),
        (provider("corp", "a", "http://a.example"), "keys_url"),
        (format!("{command}{}", principal("bob", &format!("{}\nroles = [\"user\"]", key('b')))), "`rules`"),
        (rule("user", "witer"), "`agents`"),
        ("[limits]\nresult_bytes = 1000000000".to_owned(), "limits.result_bytes"),
    ] {
        let config: GatewayConfig = toml::from_str(&text).unwrap();
        let refused = config.check().expect_err(&text);
        let remedies = ["use", "set", "name", "remove", "make", "add"];
        let has_remedy = remedies.iter().any(|verb| refused.contains(&format!("; {verb} ")));
        assert!(refused.contains(setting) && has_remedy, "{text}: {refused}");
    }
}

#[test]
fn questions_are_answered_with_one_option_for_this_time() {
    use PermissionOptionKind::{AllowOnce, RejectAlways, RejectOnce};
    let question = |options: &[(&'static str, PermissionOptionKind)]| {
        let options = options.iter().map(|(id, kind)| PermissionOption::new(*id, "", kind.clone()));
        RequestPermissionRequest::new("s", ToolCallUpdate::new("t"), options.collect::<Vec<_>>())
    };
    let cancelled = Some(RequestPermissionOutcome::Cancelled);
    let usual = question(&[("y", AllowOnce), ("n", RejectOnce), ("never", RejectAlways)]);
    assert_eq!(WorkQuestions::Ask.answer(&usual), None);
    for (questions, id) in [(WorkQuestions::Reject, "n"), (WorkQuestions::Allow, "y")] {
        assert_eq!(questions.answer(&usual), Some(RequestPermissionOutcome::selected(id)));
    }
    let always = question(&[("never", RejectAlways)]);
    let several = question(&[("a", AllowOnce), ("b", AllowOnce)]);
    let twice = question(&[("a", AllowOnce), ("a", RejectAlways)]);
    assert_eq!(WorkQuestions::Reject.answer(&always), cancelled);
    assert_eq!(WorkQuestions::Allow.answer(&several), cancelled);
    assert_eq!(WorkQuestions::Allow.answer(&twice), cancelled);
}

#[test]
fn a_principal_is_shown_without_its_secret() {
    let text = "id = \"alice\"\nkey_sha256 = \"0123\"\nwebhook_secret = \"swordfish\"";
    let principal: PrincipalConfig = toml::from_str(text).unwrap();
    let shown = format!("{principal:?}");
    assert!(shown.contains("alice") && shown.contains("[redacted]"), "{shown}");
    assert!(!shown.contains("swordfish") && !shown.contains("0123"), "{shown}");
}

#[test]
fn the_key_of_callbacks_has_a_source_and_a_least_length() {
    let read = |secret: &str| {
        let principal: PrincipalConfig =
            toml::from_str(&format!("id = \"alice\"\nwebhook_secret = {secret}")).unwrap();
        principal.webhook_secret().map(|secret| secret.unwrap()).map_err(|error| error.to_string())
    };
    let (key, short) = (secret_file("swordfish swordfish swordfish swo\n"), secret_file("swordfish"));
    let file = |(_, path): &(tempfile::TempDir, std::path::PathBuf)| format!("{{ file = {path:?} }}");
    assert_eq!(read(&file(&key)).unwrap().as_str(), "swordfish swordfish swordfish swo");
    for (secret, fault) in [
        (file(&short), "principals.webhook_secret of \"alice\": "),
        ("\"swordfish\"".to_owned(), "at least 32"),
        ("{ env = \"DUOLOGUE_ABSENT\" }".to_owned(), "env = \"DUOLOGUE_ABSENT\": the variable is not set"),
    ] {
        let refused = read(&secret).unwrap_err();
        assert!(refused.contains(fault) && !refused.contains("swordfish"), "{refused}");
    }
}

#[test]
fn a_value_of_a_wrong_form_is_named_by_its_key_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    for (text, fault) in [
        (
            "\nlisten = \"localhost:8931\"",
            "line 2: listen: invalid socket address syntax; use numbers with a port",
        ),
        (
            "[limits]\nbody_bytes = \"1 MiB\"",
            "line 2: limits.body_bytes: invalid type: string \"1 MiB\", expected a whole number",
        ),
        ("[[agents]]\nid = \"a\"\ncommand = \"x y\"", "line 3: agents[0].command: invalid type"),
        ("[limits]\nbody = 1", "line 2: limits.body: unknown field `body`"),
        // `act` is no action of a rule.
        (
            "[[rules]]\nrole = \"user\"\nactions = [\"task\", \"tsk\"]\nagents = [\"*\"]",
            "line 3: rules[0].actions[1]: unknown variant `tsk`, expected one of `discover`, `message`, `task`, `session`, `operate`",
        ),
        (
            "[[rules]]\nrole = \"user\"\nactions = [\"act\"]\nagents = [\"*\"]",
            "`session`, `operate`; set `agent` of the principal that acts for an agent",
        ),
        ("listen = ", "line 1: "),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = GatewayConfig::read(&file).unwrap_err().to_string();
        assert!(refused.contains(fault), "{text}: {refused}");
    }
}
