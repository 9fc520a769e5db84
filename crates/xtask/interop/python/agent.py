"""An agent on the official Python SDK that plays the agent's half of the surface."""

import asyncio
import os
import sys

import acp
from acp import schema
from surface import AGENT, CLIENT, SURFACE, VARS
from surface import arguments, difference, expressible, fill, known, pick, plain, reporter, row_of, typed, untagged

VARS["SESSION"] = "session-python"
report = reporter(os.environ["INTEROP_AGENT_REPORT"])


class Agent:
    def on_connect(self, conn):
        self.client = conn
        self.cancelled = asyncio.Event()

    async def cancel(self, session_id, **_):
        self.cancelled.set()

    async def ext_method(self, method, params):
        """An extension; the SDK takes the underscore off its name."""
        candidates = [entry for entry in SURFACE["agent"] if entry.get("method") == f"_{method}"]
        report(f"_{method}", difference(candidates[0]["params"], params))
        return candidates[0]["result"]

    async def ext_notification(self, method, params):
        note = next(entry for entry in SURFACE["agent"] if entry.get("notify") == f"_{method}")
        report(f"_{method}", difference(note["params"], params))

    async def play(self, entry):
        """Does what the entry says happens before the answer."""
        for update in known(entry.get("updates")):
            if row_of(update).endswith("_clear"):
                # The SDK has no such variant and no public way to send one; its connection does it.
                params = {"sessionId": VARS["SESSION"], "update": update}
                await self.client._conn.send_notification("session/update", params)
            else:
                model = typed(schema.SessionNotification, {"sessionId": "$SESSION", "update": update})
                await self.client.session_update(**arguments(model))
            report(row_of(update))
        for call in known(entry.get("calls")):
            if call.get("cancel"):
                await self.take_back(call)
                continue
            try:
                report(row_of(call), await self.call(call))
            except Exception as error:
                report(row_of(call), repr(error))
        if entry.get("cancel") == "$/cancel_request":
            try:
                await asyncio.Event().wait()
            finally:
                report(entry["cancel"])
        elif entry.get("cancel"):
            await self.cancelled.wait()
            report(entry["cancel"])

    async def take_back(self, call):
        """Makes one call, and cancels it with `$/cancel_request`."""
        answer = asyncio.create_task(self.call(call))
        await asyncio.wait({answer}, timeout=0.2)
        answer.cancel()
        try:
            report(call["cancel"], await answer)
        except asyncio.CancelledError:
            report(call["cancel"])

    async def call(self, call):
        """Makes one call to the client and says what is wrong with the answer."""
        params = fill(call["params"])
        if row_of(call).startswith("_"):
            if "notify" in call:
                return await self.client.ext_notification(row_of(call)[1:], params)
            return difference(call["result"], await self.client.ext_method(row_of(call)[1:], params))
        if "notify" in call:
            return await self.client.complete_elicitation(params["elicitationId"])
        name, request, response = CLIENT[call["method"]]
        model = typed(request, params)
        if name == "create_elicitation":
            mode = schema.ElicitationFormSessionMode if params["mode"] == "form" else schema.ElicitationUrlSessionMode
            result = await self.client.create_elicitation(model.message, typed(mode, params))
        else:
            result = await getattr(self.client, name)(**arguments(model))
        return difference(expressible(response, call["result"]), plain(result) or {})


def handler(method, request, response):
    async def handle(self, **kwargs):
        params = {name: kwargs[name] for name in kwargs if not name.startswith("_")}
        if method == "session/set_config_option" and isinstance(params["value"], bool):
            params["type"] = "boolean"
        candidates = [entry for entry in SURFACE["agent"] if entry.get("method") == method]
        entry, problem = pick(candidates, request, plain(typed(request, params)))
        report(method, problem)
        await self.play(entry)
        if error := entry.get("error"):
            raise acp.RequestError(error["code"], error["message"], error["data"])
        return untagged(typed(response, entry["result"]), entry["result"])

    return handle


for method, (name, request, response) in AGENT.items():
    setattr(Agent, name, handler(method, request, response))


def serve():
    """Serves over HTTP and WebSocket, at an address that it prints."""
    import socket

    import uvicorn
    from acp.http.asgi import create_asgi_app

    listener = socket.create_server(("127.0.0.1", 0))
    print("127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    config = uvicorn.Config(create_asgi_app(lambda _connection: Agent()), log_level="error", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


if sys.argv[1:] == ["--serve"]:
    serve()
else:
    asyncio.run(acp.run_agent(Agent(), use_unstable_protocol=True))
