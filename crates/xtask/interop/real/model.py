"""A model server for real agents: answers at once, on the loopback interface, with no model behind it.

It speaks just enough of OpenAI's chat completions and of Gemini's generateContent. A user turn that says SHELLTOOL
makes it call the agent's shell tool once, one that says WRITETOOL=<path> its file-writing tool; everything else,
and every turn after a tool's result, gets the same short text. Prints its port, then serves until it is killed.
"""

import itertools
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = ["Hello from ", "the mock model: ", "é世界 😀."]
SHELL = ("run_shell_command", "bash", "shell", "execute")
WRITE = ("write_file", "write", "create_file")
VALUES = {"command": "echo interop-ran", "content": "written by the mock model\n", "description": "a mock call"}
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


def openai(query):
    """The chunks of a chat completion."""
    turn, answered = last_turn(query["messages"], lambda m: m["role"] == "user", lambda m: m["role"] == "tool")
    tools = {t["function"]["name"]: t["function"].get("parameters") for t in query.get("tools") or []}
    call = None if answered else choose(turn, tools)
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        deltas = [{"tool_calls": [{"index": 0, "id": f"call-{next(CALLS)}", "type": "function", "function": function}]}]
    else:
        deltas = [{"content": text} for text in TEXT]
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
    parts = [{"functionCall": {"name": call[0], "args": call[1]}}] if call else [{"text": text} for text in TEXT]
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
        elif "enerateContent" in path:
            self.answer(gemini(query, ":stream" in path))
        elif path.endswith(":countTokens"):
            self.answer({"totalTokens": 10})
        else:
            self.answer({})

    def answer(self, body, done=False):
        """One JSON value, or a list of them as server-sent events."""
        events = isinstance(body, list)
        if events:
            lines = [json.dumps(event) for event in body] + ["[DONE]"] * done
            data = "".join(f"data: {line}\n\n" for line in lines).encode()
        else:
            data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if events else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """An agent that hangs up is no error."""


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
