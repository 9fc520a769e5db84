"""A model server for real agents: answers at once, on the loopback interface, with no model behind it.

It speaks just enough of OpenAI's chat completions and responses, of Anthropic's messages and of Gemini's
generateContent. A user turn that says SHELLTOOL makes it call the agent's shell tool once, one that says
WRITETOOL=<path> its file-writing tool, and one that says SLOWLY gets a text of a minute; everything else, and every
turn after a tool's result, gets the same short text. Prints its port, then serves until it is killed.
"""

import itertools
import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = ["Hello from ", "the mock model: ", "é世界 😀."]
SHELL = ("run_shell_command", "bash", "Bash", "shell", "execute", "exec_command", "shell_command")
WRITE = ("write_file", "write", "Write", "create_file")
# Qwen Code reports, now and then, that a command that ends at once was ended by a hang-up.
COMMAND = "touch interop-ran && sleep 0.3"
VALUES = {
    "command": COMMAND,
    "cmd": COMMAND,
    "sandbox_permissions": "require_escalated",
    "justification": "a mock call",
    "content": "written by the mock model\n",
    "description": "a mock call",
}
CALLS = itertools.count(1)
DEFAULTS = {"string": "x", "boolean": False, "number": 1, "integer": 1, "array": [], "object": {}}


def choose(turn, tools):
    """The tool call this turn asks for: its name and arguments, or None."""
    said = json.dumps(turn)
    path = re.search(r"WRITETOOL=([\w./-]+)", said)
    wanted = WRITE if path else SHELL if "SHELLTOOL" in said else ()
    for name in wanted:
        if name in tools:
            schema = tools[name] or {}
            arguments = {}
            for key, value in schema.get("properties", {}).items():
                if "path" in key.lower() and path:
                    arguments[key] = path[1]
                elif key in VALUES:
                    arguments[key] = VALUES[key]
                elif key in schema.get("required", []):
                    arguments[key] = DEFAULTS.get(value.get("type"), "x")
            return name, arguments
    return None


def last_turn(messages, is_user, is_result):
    """The last thing the user said, and whether a tool has answered since."""
    at = max((n for n, m in enumerate(messages) if is_user(m) and not is_result(m)), default=-1)
    return (messages[at] if at >= 0 else ""), any(is_result(m) for m in messages[at + 1 :])


def texts(turn):
    """The pieces of the text for this turn."""
    return TEXT * 200 if "SLOWLY" in json.dumps(turn) else TEXT


def openai(query):
    """The chunks of a chat completion."""
    turn, answered = last_turn(query["messages"], lambda m: m["role"] == "user", lambda m: m["role"] == "tool")
    tools = {t["function"]["name"]: t["function"].get("parameters") for t in query.get("tools") or []}
    call = None if answered else choose(turn, tools)
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        deltas = [{"tool_calls": [{"index": 0, "id": f"call-{next(CALLS)}", "type": "function", "function": function}]}]
    else:
        deltas = [{"content": text} for text in texts(turn)]
    ends = [None] * len(deltas) + ["tool_calls" if call else "stop"]
    deltas.append({})
    usage = {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18}
    base = {"id": "chat-1", "created": 1, "model": query.get("model", "mock"), "usage": usage}
    if not query.get("stream"):
        message = {"role": "assistant", "content": "".join(TEXT), **(deltas[0] if call else {})}
        choices = [{"index": 0, "message": message, "finish_reason": ends[-1]}]
        return {**base, "object": "chat.completion", "choices": choices}
    return [
        {
            **base,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": end}],
        }
        for delta, end in zip(deltas, ends)
    ]


def gemini(query, stream):
    """The chunks of a generated content."""
    is_result = lambda m: "functionResponse" in json.dumps(m)
    turn, answered = last_turn(query["contents"], lambda m: m.get("role") == "user", is_result)
    declared = [f for t in query.get("tools") or [] for f in t.get("functionDeclarations", [])]
    tools = {f["name"]: f.get("parametersJsonSchema") or f.get("parameters") for f in declared}
    call = None if answered else choose(turn, tools)
    parts = [{"functionCall": {"name": call[0], "args": call[1]}}] if call else [{"text": text} for text in texts(turn)]
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 8, "totalTokenCount": 18}

    def chunk(parts, **end):
        content = {"role": "model", "parts": parts}
        return {"candidates": [{"index": 0, "content": content, **end}], "usageMetadata": usage}

    if not stream:
        # Side questions (which model, who speaks next) want an object of their own schema.
        wants_object = "responseJsonSchema" in json.dumps(query) or "responseSchema" in json.dumps(query)
        answer = {"next_speaker": "user", "reasoning": "mock", "complexity_reasoning": "mock", "complexity_score": 1}
        return chunk([{"text": json.dumps(answer)}] if wants_object else parts, finishReason="STOP")
    return [chunk([part]) for part in parts[:-1]] + [chunk(parts[-1:], finishReason="STOP")]


def named(events):
    """Gives each event the name that is its type."""
    return [{"type": kind, **event} for kind, event in events]


def responses(query):
    """The events of a response of OpenAI."""
    given = query["input"] if isinstance(query["input"], list) else [{"role": "user", "content": query["input"]}]
    is_result = lambda m: m.get("type", "").endswith("_output")
    turn, answered = last_turn(given, lambda m: m.get("role") == "user", is_result)
    tools = {t.get("name"): t.get("parameters") for t in query.get("tools") or []}
    call = None if answered else choose(turn, tools)
    number = next(CALLS)
    if call:
        arguments = json.dumps(call[1])
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[0]}
        item, pieces = {**item, "arguments": arguments, "status": "completed"}, []
    else:
        pieces = texts(turn)
        content = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 10, "output_tokens": 8, "total_tokens": 18, **details}
    whole = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": query.get("model", "mock")}
    done = {**whole, "status": "completed", "output": [item], "usage": usage}
    if not query.get("stream"):
        return done
    place = {"output_index": 0, "content_index": 0, "item_id": item["id"]}
    opened = {**item, "status": "in_progress", **({} if call else {"content": []})}
    return named(
        [
            ("response.created", {"response": {**whole, "status": "in_progress", "output": []}}),
            ("response.output_item.added", {"output_index": 0, "item": opened}),
            *(("response.output_text.delta", {**place, "delta": piece}) for piece in pieces),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": done}),
        ]
    )


def anthropic(query):
    """The events of a message of Anthropic."""
    is_result = lambda m: "tool_result" in json.dumps(m.get("content"))
    turn, answered = last_turn(query["messages"], lambda m: m["role"] == "user", is_result)
    tools = {t["name"]: t.get("input_schema") for t in query.get("tools") or []}
    call = None if answered else choose(turn, tools)
    number = next(CALLS)
    usage = {"input_tokens": 10, "output_tokens": 8}
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": query.get("model", "mock")}
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call[0], "input": call[1]}
        opened, deltas = {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(call[1])}]
    else:
        block = {"type": "text", "text": "".join(texts(turn))}
        opened = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": text} for text in texts(turn)]
    if not query.get("stream"):
        return {**head, "content": [block], **stop, "usage": usage}
    return named(
        [
            ("message_start", {"message": {**head, "content": [], "stop_reason": None, "usage": usage}}),
            ("content_block_start", {"index": 0, "content_block": opened}),
            *(("content_block_delta", {"index": 0, "delta": delta}) for delta in deltas),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": stop, "usage": usage}),
            ("message_stop", {}),
        ]
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "mock", "object": "model", "owned_by": "mock"}]})

    def do_POST(self):
        query = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        path = self.path.split("?")[0]
        if path.endswith("/chat/completions"):
            self.answer(openai(query), done=True)
        elif path.endswith("/responses"):
            self.answer(responses(query))
        elif path.endswith("/count_tokens"):
            self.answer({"input_tokens": 10})
        elif path.endswith("/messages"):
            self.answer(anthropic(query))
        elif "enerateContent" in path:
            self.answer(gemini(query, ":stream" in path))
        elif path.endswith(":countTokens"):
            self.answer({"totalTokens": 10})
        else:
            self.answer({})

    def answer(self, body, done=False):
        """One JSON value, or a list of them as server-sent events, of which a long list takes its time."""
        events = isinstance(body, list)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if events else "application/json")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        if not events:
            self.wfile.write(json.dumps(body).encode())
            return
        for event in body:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.1 if len(body) > 100 else 0)
        if done:
            self.wfile.write(b"data: [DONE]\n\n")


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """An agent that hangs up is no error."""


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
