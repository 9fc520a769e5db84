"""What the Python agent and client share: the surface they play, the SDK's models, comparing, and reporting."""

import json
import os
import re

from acp import schema
from pydantic import TypeAdapter

SURFACE = json.load(open(os.environ["INTEROP_SURFACE"], encoding="utf-8"))
VARS = {"CWD": os.environ["INTEROP_CWD"]}
LACKS = set(filter(None, os.environ.get("INTEROP_LACKS", "").split(",")))

# method -> (name of the SDK's Python method, its request model, its response model)
AGENT = {
    "initialize": ("initialize", schema.InitializeRequest, schema.InitializeResponse),
    "authenticate": ("authenticate", schema.AuthenticateRequest, schema.AuthenticateResponse),
    "session/new": ("new_session", schema.NewSessionRequest, schema.NewSessionResponse),
    "session/load": ("load_session", schema.LoadSessionRequest, schema.LoadSessionResponse),
    "session/list": ("list_sessions", schema.ListSessionsRequest, schema.ListSessionsResponse),
    "session/resume": ("resume_session", schema.ResumeSessionRequest, schema.ResumeSessionResponse),
    "session/close": ("close_session", schema.CloseSessionRequest, schema.CloseSessionResponse),
    "session/delete": ("delete_session", schema.DeleteSessionRequest, schema.DeleteSessionResponse),
    "logout": ("logout", schema.LogoutRequest, schema.LogoutResponse),
    "session/set_mode": ("set_session_mode", schema.SetSessionModeRequest, schema.SetSessionModeResponse),
    "session/set_config_option": (
        "set_config_option",
        schema.SetSessionConfigOptionBooleanRequest | schema.SetSessionConfigOptionSelectRequest,
        schema.SetSessionConfigOptionResponse,
    ),
    "session/prompt": ("prompt", schema.PromptRequest, schema.PromptResponse),
}
CLIENT = {
    "session/request_permission": (
        "request_permission",
        schema.RequestPermissionRequest,
        schema.RequestPermissionResponse,
    ),
    "fs/write_text_file": ("write_text_file", schema.WriteTextFileRequest, schema.WriteTextFileResponse),
    "fs/read_text_file": ("read_text_file", schema.ReadTextFileRequest, schema.ReadTextFileResponse),
    "terminal/create": ("create_terminal", schema.CreateTerminalRequest, schema.CreateTerminalResponse),
    "terminal/output": ("terminal_output", schema.TerminalOutputRequest, schema.TerminalOutputResponse),
    "terminal/release": ("release_terminal", schema.ReleaseTerminalRequest, schema.ReleaseTerminalResponse),
    "terminal/wait_for_exit": (
        "wait_for_terminal_exit",
        schema.WaitForTerminalExitRequest,
        schema.WaitForTerminalExitResponse,
    ),
    "terminal/kill": ("kill_terminal", schema.KillTerminalRequest, schema.KillTerminalResponse),
    "elicitation/create": (
        "create_elicitation",
        schema.CreateElicitationRequest,
        schema.CreateElicitationResponse,
    ),
}


def row_of(item):
    return item.get("sessionUpdate") or item.get("cancel") or item.get("method") or item["notify"]


def known(items):
    """Leaves out what this SDK lacks."""
    return [item for item in items or [] if row_of(item) not in LACKS]


def fill(value):
    """Puts the values of VARS where the surface says $NAME."""
    if isinstance(value, str):
        return re.sub(r"\$([A-Z]+)", lambda found: VARS.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [fill(item) for item in value]
    if isinstance(value, dict):
        return {key: fill(item) for key, item in value.items()}
    return value


def typed(model, value):
    """The SDK's model of a value from the surface."""
    return TypeAdapter(model).validate_python(fill(value))


def untagged(response, value):
    """A response with the kinds of `authMethods` that the surface means: 1.0 reads one without a type as a terminal."""
    for n, method in enumerate(value.get("authMethods", [])):
        if "type" not in method:
            response.auth_methods[n] = typed(schema.AuthMethodAgent, method)
    return response


def plain(value):
    """The wire form of one of the SDK's models, or of a list or dict of them."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def expressible(model, value):
    """What is left of a value from the surface in the SDK's model: an SDK behind the schema drops new fields."""
    learn = {key: item for key, item in value.items() if item in ("$SESSION", "$TERMINAL")}
    return {**plain(typed(model, value)), **learn}


def difference(expected, actual, at=""):
    """The first difference: everything expected must be there, more may be. A $NAME not yet known is learnt."""
    if isinstance(expected, str) and re.fullmatch(r"\$[A-Z]+", expected) and expected[1:] not in VARS:
        if not isinstance(actual, str) or not actual:
            return f"{at}: no value for {expected}"
        VARS[expected[1:]] = actual
        return None
    expected = fill(expected)
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return f"{at}: {actual!r} is no object"
        pairs = [(key, item, actual.get(key)) for key, item in expected.items()]
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{at}: {actual!r}"
        pairs = [(str(n), item, actual[n]) for n, item in enumerate(expected)]
    else:
        return None if expected == actual else f"{at}: {actual!r} is not {expected!r}"
    return next(filter(None, (difference(item, other, f"{at}/{key}") for key, item, other in pairs)), None)


def pick(candidates, model, actual):
    """The candidate whose params fit (the most demanding one), or what is wrong with it."""
    best = (None, "not in the surface")
    for entry in sorted(candidates, key=lambda entry: -len(json.dumps(entry["params"]))):
        problem = difference(expressible(model, entry["params"]), actual)
        if not problem:
            return entry, None
        best = best if best[0] else (entry, problem)
    return best


def arguments(model):
    """A request model as the keyword arguments of the SDK's method."""
    skip = ("field_meta", "type")
    return {name: getattr(model, name) for name in type(model).model_fields if name not in skip}


def reporter(path):
    """Writes one line for a method or variant, with the problem if there is one."""

    def report(row, problem=None, detail=None):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"row": row, "ok": not problem, "detail": problem or detail}) + "\n")

    return report
