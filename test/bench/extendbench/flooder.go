package extendbench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"proa.dev/internal/wait"
	"proa.dev/test/upstream"
)

// The flood is a process of its own, so that it can run with a priority of its own: a flood comes from other machines, and what
// it takes of the processors of this one stands for nothing real.

// floodCommand is the first argument of this program when it is the flood.
const floodCommand = "flood"

// flooding is how many connections the flood has.
const flooding = 200

// floodCount counts what the flood has done so far, or in a time.
type floodCount struct {
	Lists, Creates, Refused, Failed int64

	took  time.Duration
	cores float64 // of the server, meanwhile
}

// since subtracts an earlier count.
func (c *floodCount) since(first floodCount, took time.Duration) {
	c.Lists -= first.Lists
	c.Creates -= first.Creates
	c.Refused -= first.Refused
	c.Failed -= first.Failed
	c.took = took
}

func (c *floodCount) rate(n int64) float64 { return float64(n) / c.took.Seconds() }

// flooder is the process of the flood, as the measuring process sees it.
type flooder struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startFlood starts the flood.
func (t *extendTrial) startFlood(ctx context.Context) (*flooder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &flooder{cmd: exec.CommandContext(ctx, self, t.floodArgs()...)}
	f.cmd.Stderr = os.Stderr
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	f.out = bufio.NewReader(out)
	return f, f.cmd.Start()
}

// count asks the flood what it has done so far.
func (f *flooder) count() (c floodCount, err error) {
	if _, err := io.WriteString(f.in, "\n"); err != nil {
		return c, fmt.Errorf("ask the flood: %w", err)
	}
	line, err := f.out.ReadBytes('\n')
	if err != nil {
		return c, fmt.Errorf("ask the flood: %w", err)
	}
	return c, json.Unmarshal(line, &c)
}

// stop ends the flood.
func (f *flooder) stop() {
	_ = f.in.Close()
	_ = f.cmd.Wait() // it was told to end, and what it did is known
}

// RunFlood runs this program as the flood: it reports its counts on request, and ends when its standard input is
// closed.
func RunFlood(ctx context.Context, kubeconfig, path, priority string) error {
	if err := setPriority(priority); err != nil {
		return err
	}
	config, err := upstream.LoadConfig(kubeconfig)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	var did floods
	for i := range flooding {
		h, err := ownConnection(config)
		if err != nil {
			return err
		}
		wg.Go(func() { did.loud(ctx, h, config.Host+path, i) })
	}
	asked := bufio.NewReader(os.Stdin)
	for {
		if _, err := asked.ReadByte(); err != nil {
			return nil // that is how it is told to end
		}
		if err := json.NewEncoder(os.Stdout).Encode(did.count()); err != nil {
			return err
		}
	}
}

// setPriority sets the priority of this process: idle runs only when nothing else does, nice is the lowest of the usual
// ones, and normal changes nothing. It must be called before there are other threads than those that Go starts with;
// threads inherit it.
func setPriority(priority string) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		var id int
		if _, err := fmt.Sscan(thread.Name(), &id); err != nil {
			return err
		}
		switch priority {
		case "idle":
			err = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		case "nice":
			err = unix.Setpriority(unix.PRIO_PROCESS, id, 19)
		case "normal":
		default:
			err = fmt.Errorf("there is no priority %q; take idle, nice or normal", priority)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// floods counts what all connections do.
type floods struct{ lists, creates, refused, failed atomic.Int64 }

func (f *floods) count() floodCount {
	return floodCount{Lists: f.lists.Load(), Creates: f.creates.Load(), Refused: f.refused.Load(), Failed: f.failed.Load()}
}

// loud lists and creates in turn, as fast as it is answered. It ignores the answers, which would cost the flood
// processor time.
func (f *floods) loud(ctx context.Context, h *http.Client, url string, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		list := n%2 == 0
		method, body := http.MethodGet, []byte(nil)
		if !list {
			method = http.MethodPost
			body, _ = json.Marshal(thing(0, fmt.Sprintf("loud-%d-%d", number, n))) // it is always JSON
		}
		code, err := sendLoudly(ctx, h, method, url, body)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			f.failed.Add(1)
		case code == http.StatusTooManyRequests:
			f.refused.Add(1)
		case list:
			f.lists.Add(1)
		default:
			f.creates.Add(1)
		}
		if err != nil || code == http.StatusTooManyRequests {
			_ = wait.Sleep(ctx, 10*time.Millisecond)
		}
	}
}

// sendLoudly sends a request of the flood and discards the answer.
func sendLoudly(ctx context.Context, h *http.Client, method, url string, body []byte) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "gzip") // who says it himself gets it as it is
	req.Header.Set("Impersonate-User", "loud")
	resp, err := h.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// ownConnection returns a client that shares no connection with others.
func ownConnection(shared *rest.Config) (*http.Client, error) {
	config := rest.CopyConfig(shared)
	config.Dial = nil
	config.Proxy = http.ProxyFromEnvironment // a function makes the transport one of its own
	return rest.HTTPClientFor(config)
}
