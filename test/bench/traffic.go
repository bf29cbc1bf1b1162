package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/test/lab"
	"proa.dev/test/upstream"
)

// The networks of the arena. That of Services is what both API servers have by default.
const (
	arenaPods     = "10.250.0.0/16"
	arenaServices = "10.96.0.0/16"
	arenaDNS      = "10.96.0.10"
	arenaNode     = "10.250.1.1"
)

// arena is where the last hop is measured: a node that is nothing but a network namespace, with Pods that are namespaces too,
// linked to it and served by this program. On the node runs what makes Services work, and nothing else; the API server runs
// beside it.
type arena struct {
	*trial
	dir    string
	system *upstream.System
	node   *lab.Net
	client *lab.Net
	pods   []*lab.Net // servers
	procs  []*exec.Cmd
	edge   []int // the processes that are measured
	tool   string

	namespace string
	filled    int  // Services that are there
	serving   bool // servers answer HTTP
	upstream  bool // the system is upstream's
	closers   []io.Closer
}

// edgeStart starts what makes Services and names work on the node of an arena.
type edgeStart func(context.Context, *arena) error

// traffic is the suite of the last hop. Both systems use the same API server: proa's.
func traffic(ctx context.Context, t *subject, r *result, set settings) (err error) {
	if t.edge == nil {
		return errors.New("the traffic suite starts its own systems; it cannot measure a running one")
	}
	if why := lab.Missing(); why != "" {
		return errors.New(why)
	}
	a := &arena{upstream: t.name == "upstream"}
	defer func() { err = errors.Join(err, a.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what runs in the background before the API server
	if err := a.open(ctx, r, set); err != nil {
		return err
	}
	if err := t.edge(ctx, a); err != nil {
		return err
	}
	// The clock of the first measurement does not run while things start.
	if err := a.fill(ctx, 1); err != nil {
		return fmt.Errorf("%w%s", err, a.dead())
	}
	for _, s := range trafficSteps() {
		if !set.wanted(s.name) {
			continue
		}
		progress("%s: %s", r.Name, s.name)
		start := time.Now()
		if err := s.run(ctx, a); err != nil {
			r.failed(s.name, fmt.Errorf("%w%s", err, a.dead()))
		}
		progress("%s: %s took %s", r.Name, s.name, time.Since(start).Round(100*time.Millisecond))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// open starts the API server and makes the networks.
func (a *arena) open(ctx context.Context, r *result, set settings) (err error) {
	if a.dir, err = os.MkdirTemp("", "arena-"); err != nil {
		return err
	}
	if a.tool, err = goBuild(ctx, a.dir, "./test/images/tool"); err != nil {
		return err
	}
	// Without the controller of EndpointSlices nothing becomes of ready Pods; everything else of a control plane is there too.
	if a.system, err = upstream.StartProa(ctx, set.bin, "--service-cidr", arenaServices); err != nil {
		return err
	}
	c, err := newCluster(a.system.Kubeconfig)
	if err != nil {
		return err
	}
	a.trial = &trial{cluster: c, set: set, r: r, pids: a.system.Pids()}
	if err := c.nodes(ctx, fleet{n: 1, zones: 1}, 1); err != nil {
		return err
	}
	// kube-proxy does not begin before its node has an address.
	patch := `{"status":{"addresses":[{"type":"InternalIP","address":"` + arenaNode + `"}]}}`
	if err := (place{door: c.core, resource: "nodes"}).patchStatus(ctx, nodeName(0), []byte(patch), &corev1.Node{}); err != nil {
		return err
	}
	if a.namespace, err = c.newNamespace(ctx, "traffic"); err != nil {
		return err
	}
	if a.node, err = lab.New(); err != nil {
		return err
	}
	if err := a.node.Set("ipv4/ip_forward=1", "ipv4/conf/all/rp_filter=0"); err != nil {
		return err
	}
	if a.client, err = a.plug("c0", 1); err != nil {
		return err
	}
	for i := range 3 {
		pod, err := a.plug("s"+strconv.Itoa(i), byte(2+i))
		if err != nil {
			return err
		}
		a.pods = append(a.pods, pod)
		if err := a.answer(pod, a.name(i)); err != nil {
			return err
		}
	}
	return a.relay()
}

// plug makes a Pod: a namespace that is linked to the node.
func (a *arena) plug(name string, number byte) (*lab.Net, error) {
	pod, err := lab.New()
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, pod)
	here := fmt.Sprintf("10.250.%d.1", number)
	err = lab.Link(lab.End{Net: pod, Name: "eth0", Addrs: []string{podAddress(number) + "/30"}}, lab.End{Net: a.node, Name: name, Addrs: []string{here + "/30"}})
	if err != nil {
		return nil, err
	}
	return pod, pod.IP("route add default via " + here)
}

func podAddress(number byte) string { return fmt.Sprintf("10.250.%d.2", number) }

// name and address of a server.
func (a *arena) name(i int) string    { return "server-" + strconv.Itoa(i) }
func (a *arena) address(i int) string { return podAddress(byte(2 + i)) }

// whoPort is where servers tell their names.
const whoPort = 7070

// answer tells everybody who connects the name of the server.
func (a *arena) answer(pod *lab.Net, name string) error {
	var l net.Listener
	err := pod.Do(func() (err error) {
		l, err = net.Listen("tcp", ":"+strconv.Itoa(whoPort))
		return err
	})
	if err != nil {
		return err
	}
	a.closers = append(a.closers, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(name + "\n"))
			_ = c.Close()
		}
	}()
	return nil
}

// relay makes the API server reachable from the node, at the address that its kubeconfig has: this program hands bytes on.
func (a *arena) relay() error {
	config, err := a.system.Config()
	if err != nil {
		return err
	}
	at, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	var l net.Listener
	err = a.node.Do(func() (err error) {
		l, err = net.Listen("tcp", at.Host)
		return err
	})
	if err != nil {
		return fmt.Errorf("relay to the API server: %w", err)
	}
	a.closers = append(a.closers, l)
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", at.Host)
			if err != nil {
				_ = here.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
	return nil
}

// start runs a program on the node, or in a Pod, until the arena closes. Its log is a file of the arena.
func (a *arena) start(in *lab.Net, name, bin string, args ...string) (pid int, err error) {
	log, err := os.Create(filepath.Join(a.dir, name+".log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := in.Command(context.Background(), bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = a.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	a.procs = append(a.procs, cmd)
	return cmd.Process.Pid, nil // nsenter has become the program
}

// dead has the ends of the logs, if a process that is measured has ended.
func (a *arena) dead() string {
	var b strings.Builder
	for _, pid := range a.edge {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(state), ") Z ") {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(a.dir, "*.log"))
		for _, f := range files {
			data, _ := os.ReadFile(f)
			fmt.Fprintf(&b, "\n--- %s\n%s", filepath.Base(f), data[max(0, len(data)-2000):])
		}
	}
	return b.String()
}

// close ends everything, last started first.
func (a *arena) close() error {
	for _, cmd := range a.procs {
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, cmd := range a.procs {
		kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	}
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	errs = append(errs, a.node.Close())
	a.system.Stop()
	if os.Getenv("PROA_KEEP") != "" {
		progress("kept %s", a.dir)
	} else if a.dir != "" {
		errs = append(errs, os.RemoveAll(a.dir))
	}
	return errors.Join(errs...)
}

// goBuild makes a program of this module.
func goBuild(ctx context.Context, dir, pkg string) (string, error) {
	root, err := upstream.Root()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", out, pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return out, nil
}

// startEdge starts the last hop of proa.
func startEdge(ctx context.Context, a *arena) error {
	bin, err := goBuild(ctx, a.dir, "./test/bench/edge")
	if err != nil {
		return err
	}
	pid, err := a.start(a.node, "edge", bin, "-kubeconfig", a.system.Kubeconfig, "-node", nodeName(0), "-dns", arenaDNS, "-service-cidr", arenaServices, "-cluster-cidr", arenaPods)
	a.edge = []int{pid}
	return err
}

// corefile is what kubeadm gives to CoreDNS, without the names of the outside, which nobody asks for here.
const corefile = `.:53 {
    bind ` + arenaDNS + `
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus 127.0.0.1:9153
    cache 30
    loadbalance
}
`

// startUpstreamEdge starts kube-proxy in its nftables mode, and CoreDNS at the address of the cluster's DNS.
func startUpstreamEdge(ctx context.Context, a *arena) error {
	bins, err := upstream.Build(ctx, "kube-proxy", "coredns")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("kube-proxy needs the program nft (package nftables)")
	}
	proxy, err := a.start(a.node, "kube-proxy", bins["kube-proxy"], "--proxy-mode=nftables", "--kubeconfig="+a.system.Kubeconfig, "--hostname-override="+nodeName(0),
		"--cluster-cidr="+arenaPods, "--conntrack-max-per-core=0", "--kube-api-qps=2000", "--kube-api-burst=4000")
	if err != nil {
		return err
	}
	if err := a.node.IP("addr add " + arenaDNS + "/32 dev lo"); err != nil {
		return err
	}
	file := filepath.Join(a.dir, "Corefile")
	if err := os.WriteFile(file, fmt.Appendf(nil, corefile, a.system.Kubeconfig), 0o600); err != nil {
		return err
	}
	names, err := a.start(a.node, "coredns", bins["coredns"], "-conf", file)
	a.edge = []int{proxy, names}
	return err
}

// proxy is the process that makes the rules; names the one that answers names.
func (a *arena) proxy() []int { return a.edge[:1] }
func (a *arena) names() []int { return a.edge[len(a.edge)-1:] }

// services is where the Services of the arena are.
func (a *arena) services() place {
	return place{door: a.core, namespace: a.namespace, resource: "services"}
}
func (a *arena) slices() place {
	return place{door: a.discovery, namespace: a.namespace, resource: "endpointslices"}
}
