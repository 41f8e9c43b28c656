"""Another machine, played: what stands there reads what the parent of --launch sends, and answers without torch."""

import json
import os
import sys

from conftest import FakeLaunch

sys.stdin.readline()  # the sources
launch, workers = FakeLaunch(), {}
launch.facts = {"node": os.environ["NODE"], "cpu": "Their CPU", "usable_cpus": 7, "cpus": 8}
launch.facts |= {"memory_bytes": 1 << 40, "usable_bytes": 1 << 39, "no_driver": "", "forks": False}
print("1 Welcome there")
for line in sys.stdin:
    number, verb, rest = line.rstrip("\n").split(" ", 2)
    if verb == "start":
        workers[number] = launch()
        said = {"torch": workers[number].greeting()}
    elif verb == "ask":
        asked = json.loads(rest)
        if asked["do"] == "fork":
            said = {"forked": int(os.environ["FORK"]), "number": asked["number"]}
        elif asked["do"] == "leave":
            said = {"ended": 0, "number": launch.forks[number]}
        else:
            said = workers[number].ask(asked, 1.0) | {"number": asked["number"]}
        launch.forks = getattr(launch, "forks", {}) | ({number: asked["number"]} if asked["do"] == "fork" else {})
    else:
        said = None
    print(f"ffnbench: {number} " + ('ended [0, ""]' if said is None else f"said {json.dumps(said)}"), flush=True)
