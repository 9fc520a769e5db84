"""The client of the benchmark on the official Python SDK: bench_client.py [uvloop] PLAY NUMBER.. -- AGENT ARG..

crates/bench/src/play.rs says what a play is.
"""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import acp
from acp import schema
from bench import FILE_BYTES, Watch, run, usage

FILE = "x" * FILE_BYTES
# What the SDK takes for an agent, where it is as generous with a client only when told to be.
LIMIT = 50 * 1024 * 1024


class Session:
    def __init__(self, expected, folded):
        self.messages, self.bytes, self.expected = 0, 0, expected
        self.text = "" if folded else None
        self.arrived = asyncio.Event()


class Client:
    """Counts what has arrived, by session."""

    def __init__(self):
        self.seen = {}

    async def session_update(self, session_id, update, **_):
        session, text = self.seen[session_id], update.content.text
        session.messages += 1
        session.bytes += len(text)
        if session.text is not None:
            # The SDK knows no clear; a chunk without text stands for one.
            session.text = session.text + text if text else ""
        if session.messages == session.expected:
            session.arrived.set()

    async def read_text_file(self, path, session_id, **_):
        return acp.ReadTextFileResponse(content=FILE)


class Stage:
    def __init__(self, client, agent):
        self.client, self.agent = client, agent

    async def new_session(self):
        return (await self.agent.new_session(cwd="/bench", mcp_servers=[])).session_id

    async def prompt(self, session_id, text, expected, image=None, folded=False):
        """One turn. The SDK may resolve a request before it has handed over the updates that came ahead of it."""
        session = self.client.seen[session_id] = Session(expected, folded)
        blocks = [acp.text_block(text)]
        if image:
            blocks.append(acp.image_block(image, "image/png"))
        answer = await self.agent.prompt(session_id=session_id, prompt=blocks)
        assert answer.stop_reason == "end_turn", answer.stop_reason
        if expected:
            await session.arrived.wait()
        return session

    async def said(self, session_id, text, image=None):
        return (await self.prompt(session_id, text, 1, image, folded=True)).text

    async def usages(self, session_id):
        return json.loads(await self.said(session_id, "usage")), usage()

    async def stream(self, session_id, count, size):
        watch = Watch()
        turn = await self.prompt(session_id, f"stream {count} {size}", count)
        return {"messages": turn.messages, "bytes": turn.bytes, "wall_ns": watch.wall()}

    async def prompts(self, session_id, count):
        watch = Watch()
        for _ in range(count):
            await self.prompt(session_id, "end", 0)
            watch.lap()
        return {"messages": count, "bytes": 0, "wall_ns": watch.wall(), "latency_ns": watch.latency()}

    async def read(self, session_id, count):
        watch = Watch()
        said = json.loads(await self.said(session_id, f"read {count}"))
        latency = {name: said[name] for name in ("mean", "p50", "p99")}
        return {"messages": said["count"], "bytes": said["bytes"], "wall_ns": watch.wall(), "latency_ns": latency}

    async def sessions(self, _, sessions, count, size):
        made = [await self.new_session() for _ in range(sessions)]
        watch = Watch()
        turns = await asyncio.gather(*(self.prompt(each, f"stream {count} {size}", count) for each in made))
        wall = watch.wall()
        assert all(turn.messages == count for turn in turns), "a session did not see all its updates"
        seen, size = sum(turn.messages for turn in turns), sum(turn.bytes for turn in turns)
        return {"messages": seen, "bytes": size, "wall_ns": wall}

    async def idle(self, _, sessions):
        watch = Watch()
        made = [await self.new_session() for _ in range(sessions)]
        return {"messages": len(made), "bytes": 0, "wall_ns": watch.wall()}

    async def image(self, session_id, size, count):
        image, watch, seen = "A" * size, Watch(), 0
        for _ in range(count):
            watch.again()
            seen += int(await self.said(session_id, "image", image))
            watch.lap()
        return {"messages": count, "bytes": seen, "wall_ns": watch.wall(), "latency_ns": watch.latency()}

    async def redraw(self, session_id, rounds, size):
        watch = Watch()
        turn = await self.prompt(session_id, f"redraw {rounds} {size}", 3 * rounds, folded=True)
        return {"messages": turn.messages, "bytes": len(turn.text), "wall_ns": watch.wall()}


@asynccontextmanager
async def connected(argv):
    client = Client()
    options = {"stderr": None, "limit": LIMIT}
    async with acp.spawn_agent_process(
        client, *argv, env=dict(os.environ), transport_kwargs=options
    ) as (agent, _process):
        files = schema.FileSystemCapabilities(read_text_file=True)
        await agent.initialize(
            protocol_version=acp.PROTOCOL_VERSION, client_capabilities=schema.ClientCapabilities(fs=files)
        )
        yield Stage(client, agent)


async def start(argv, count):
    watch = Watch()
    for _ in range(count):
        watch.again()
        async with connected(argv):
            watch.lap()
    return {"messages": count, "bytes": 0, "wall_ns": watch.wall(), "latency_ns": watch.latency()}


async def main():
    end = sys.argv.index("--")
    play, *numbers = sys.argv[1:end]
    numbers, argv = [int(number) for number in numbers], sys.argv[end + 1 :]
    if play == "start":
        figures = await start(argv, *numbers)
    else:
        async with connected(argv) as stage:
            session_id = await stage.new_session()
            before = await stage.usages(session_id)
            figures = await getattr(stage, play)(session_id, *numbers)
            after = await stage.usages(session_id)
            figures |= {"agent": [before[0], after[0]], "client": [before[1], after[1]]}
    print(json.dumps(figures))


run(main())
