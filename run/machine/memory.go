package machine

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"proa.dev/node/cgroup"
	"proa.dev/run/goprocess"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/machine/nodefolder"
)

// limitMemory limits the memory of this process, an agent, by a cgroup of its own. The collector of garbage works harder below the limit.
// What the agent starts and leaves running, the container runtime, is not in that cgroup.
func limitMemory(ctx context.Context, c *agentjoin.Agent, log *slog.Logger) {
	limit := c.Node.AgentMemory
	if limit < 0 {
		return
	}
	if limit == 0 {
		limit = goprocess.ShareOfMemory(goprocess.MachineMemory("/proc/meminfo"))
	}
	debug.SetMemoryLimit(limit / 10 * 9)
	host, err := cgroup.FindHost()
	if err == nil {
		err = host.Confine(cgroup.ForAgent(cgroup.RootFor(nodefolder.AgentDir(c.DataDir))), os.Getpid(), limit)
	}
	if err != nil {
		log.WarnContext(ctx, "the memory of the agent has no limit but that of the machine", "err", err)
	}
}
