"""A client on the official Python SDK that plays the client's half of the surface: client.py AGENT [ARG…]"""

import asyncio
import contextlib
import os
import sys

import acp
from acp import schema
from acp.client.connection import ClientSideConnection
from pydantic import ValidationError
from surface import AGENT, CLIENT, LACKS, SURFACE, VARS
from surface import arguments, difference, expressible, fill, known, pick, plain, reporter, row_of, typed

report = reporter(os.environ["INTEROP_CLIENT_REPORT"])
CALLS = [call for entry in SURFACE["agent"] for call in entry.get("calls", [])]


class Client:
    seen: list = []
    updated = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.seen.append(plain(update))
        self.updated.set()

    async def complete_elicitation(self, elicitation_id, **_):
        self.told("elicitation/complete", {"elicitationId": elicitation_id})

    async def ext_method(self, method, params):
        """An extension; the SDK takes the underscore off its name."""
        call = next(call for call in CALLS if call.get("method") == f"_{method}")
        report(f"_{method}", difference(call["params"], params))
        return call["result"]

    async def ext_notification(self, method, params):
        self.told(f"_{method}", params)

    def told(self, method, params):
        call = next(call for call in CALLS if call.get("notify") == method)
        report(method, difference(call["params"], params))

    async def create_elicitation(self, message, mode, **_):
        kind = "form" if isinstance(mode, schema.ElicitationFormSessionMode) else "url"
        return await answer("elicitation/create", {"message": message, "mode": kind, **plain(mode)})


async def answer(method, params):
    _, request, response = CLIENT[method]
    entry, problem = pick([call for call in CALLS if call.get("method") == method], request, params)
    report(entry.get("cancel") or method, problem)
    VARS.setdefault("TERMINAL", "term-python")
    if entry.get("cancel"):
        await asyncio.Event().wait()
    return typed(response, entry["result"])


def handler(method, request):
    async def handle(self, **kwargs):
        return await answer(method, plain(typed(request, kwargs)))

    return handle


for method, (name, request, _) in CLIENT.items():
    if not hasattr(Client, name):
        setattr(Client, name, handler(method, request))


def check_updates(entry):
    """Every update of the entry must have come, in order, before its answer."""
    start = 0
    for update in known(entry.get("updates")):
        row = row_of(update)
        notification = expressible(schema.SessionNotification, {"sessionId": "s", "update": update})
        fits = [n for n in range(start, len(Client.seen)) if not difference(notification["update"], Client.seen[n])]
        rivals = [other for other in Client.seen if other.get("sessionUpdate") == row]
        problem = difference(notification["update"], (rivals or [None])[0]) or "out of order"
        report(row, None if fits else problem)
        start = fits[0] + 1 if fits else start


def check_readable(readable):
    """A client that has never heard of clears still gets a text one can read."""
    for row, kind, end in (
        ("agent_message_clear", "agent_message_chunk", readable["text"]),
        ("agent_thought_clear", "agent_thought_chunk", readable["thought"]),
    ):
        said = "".join(update["content"]["text"] for update in Client.seen if update["sessionUpdate"] == kind)
        report(row, None if said.endswith(end) else f"not readable: {said!r}", said)


async def cancel_when_updated(agent, how, request):
    await Client.updated.wait()
    if how == "session/cancel":
        await agent.cancel(VARS["SESSION"])
    else:
        request.cancel()


async def extension(agent, entry):
    row = row_of(entry)
    if "notify" in entry:
        await agent.ext_notification(row[1:], entry["params"])
        report(row)
    else:
        report(row, difference(entry["result"], await agent.ext_method(row[1:], entry["params"])))


async def step(agent, entry):
    Client.seen.clear()
    Client.updated.clear()
    if row_of(entry).startswith("_"):
        return await extension(agent, entry)
    name, request, response = AGENT[entry["method"]]
    row = entry.get("cancel") or ("an error" if "error" in entry else entry["method"])
    cancelling = None
    try:
        kwargs = arguments(typed(request, entry["params"]))
        call = asyncio.ensure_future(getattr(agent, name)(**kwargs))
        if "cancel" in entry:
            cancelling = asyncio.create_task(cancel_when_updated(agent, row, call))
        result = await asyncio.wait_for(call, 15)
        if "error" in entry:
            report(row, "answered, not refused")
        else:
            report(row, difference(expressible(response, entry["result"]), plain(result)))
    except asyncio.CancelledError:
        report(row, None if row == "$/cancel_request" else "cancelled")
    except Exception as error:
        refused = "error" in entry and isinstance(error, acp.RequestError)
        report(row, difference(entry["error"], error.to_error_obj()) if refused else repr(error))
    if cancelling:
        cancelling.cancel()
    # This SDK may resolve a request before it has handed over the updates that came before the answer.
    await asyncio.sleep(0.05)
    if "readable" in entry:
        check_readable(entry["readable"])
    else:
        check_updates(entry)


def check_lacks():
    """What the SDK is said to lack, it must lack; else the list in the surface is out of date."""
    for entry in SURFACE["agent"]:
        for update in entry.get("updates", []):
            if row_of(update) in LACKS:
                with contextlib.suppress(ValidationError):
                    typed(schema.SessionNotification, {"sessionId": "s", "update": update})
                    report(row_of(update), "the SDK has this variant now")
    for row, name in (("session/delete", "delete_session"), ("logout", "logout")):
        if row in LACKS and hasattr(ClientSideConnection, name):
            report(row, "the SDK has this method now")


async def main():
    check_lacks()
    url = sys.argv[1]
    if "://" in url:
        if url.startswith("ws"):
            from acp.ws import create_websocket_stream

            stream = await create_websocket_stream(url)
        else:
            from acp.http import create_http_stream

            stream = create_http_stream(url)
        agent = acp.connect_to_agent(Client(), stream, use_unstable_protocol=True)
        for entry in known(SURFACE["agent"]):
            await step(agent, entry)
        await agent.close()
        return
    spawned = acp.spawn_agent_process(
        Client(),
        *sys.argv[1:],
        env=dict(os.environ),
        use_unstable_protocol=True,
        transport_kwargs={"stderr": None, "limit": 1 << 24},
    )
    async with spawned as (agent, _process):
        for entry in known(SURFACE["agent"]):
            await step(agent, entry)


asyncio.run(main())
