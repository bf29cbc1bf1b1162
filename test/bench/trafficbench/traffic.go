// Package trafficbench measures what implements Services and DNS on a node, in network namespaces.
package trafficbench

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

	"proa.dev/test/bench/benchrun"
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

// trafficTrial is the environment in which Services and DNS are measured: a node that is only a network namespace, with
// Pods that are namespaces too and are served by this program. On the node runs what implements Services, and nothing
// else; the API server runs beside it.
type trafficTrial struct {
	*benchrun.Trial
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

// proxyStart starts what implements Services and DNS on the node of a trial.
type proxyStart func(context.Context, *trafficTrial) error

// Run measures Services and DNS. Both systems use the same API server: proa's.
func Run(ctx context.Context, t *benchrun.Subject, r *benchrun.Result, set benchrun.Settings) (err error) {
	var startProxy proxyStart
	switch t.Name {
	case "upstream":
		startProxy = startUpstreamEdge
	case "proa":
		startProxy = startEdge
	default:
		return errors.New("the traffic suite starts its own systems; it cannot measure a running one")
	}
	if why := lab.Missing(); why != "" {
		return errors.New(why)
	}
	a := &trafficTrial{upstream: t.Name == "upstream"}
	defer func() { err = errors.Join(err, a.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what runs in the background before the API server
	if err := a.open(ctx, r, set); err != nil {
		return err
	}
	if err := startProxy(ctx, a); err != nil {
		return err
	}
	// The clock of the first measurement does not run while things start.
	if err := a.fill(ctx, 1); err != nil {
		return fmt.Errorf("%w%s", err, a.dead())
	}
	for _, s := range TrafficSteps() {
		if !set.Wanted(s.Name) {
			continue
		}
		benchrun.Progress("%s: %s", r.Name, s.Name)
		start := time.Now()
		if err := s.run(ctx, a); err != nil {
			r.AddFailure(s.Name, fmt.Errorf("%w%s", err, a.dead()))
		}
		benchrun.Progress("%s: %s took %s", r.Name, s.Name, time.Since(start).Round(100*time.Millisecond))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// open starts the API server and makes the networks.
func (a *trafficTrial) open(ctx context.Context, r *benchrun.Result, set benchrun.Settings) (err error) {
	if a.dir, err = os.MkdirTemp("", "arena-"); err != nil {
		return err
	}
	if a.tool, err = goBuild(ctx, a.dir, "./test/images/tool"); err != nil {
		return err
	}
	// Without the controller of EndpointSlices nothing becomes of ready Pods; everything else of a control plane is there too.
	if a.system, err = upstream.StartProa(ctx, set.Bin, "--service-cidr", arenaServices); err != nil {
		return err
	}
	c, err := benchrun.NewCluster(a.system.Kubeconfig)
	if err != nil {
		return err
	}
	a.Trial = &benchrun.Trial{Cluster: c, Set: set, R: r, Pids: a.system.Pids()}
	if err := c.Nodes(ctx, benchrun.Fleet{N: 1, Zones: 1}, 1); err != nil {
		return err
	}
	// kube-proxy does not begin before its node has an address.
	patch := `{"status":{"addresses":[{"type":"InternalIP","address":"` + arenaNode + `"}]}}`
	if err := (benchrun.ResourceClient{Door: c.Core, Resource: "nodes"}).PatchStatus(ctx, benchrun.NodeName(0), []byte(patch),
		&corev1.Node{}); err != nil {
		return err
	}
	if a.namespace, err = c.NewNamespace(ctx, "traffic"); err != nil {
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
func (a *trafficTrial) plug(name string, number byte) (*lab.Net, error) {
	pod, err := lab.New()
	if err != nil {
		return nil, err
	}
	a.closers = append(a.closers, pod)
	here := fmt.Sprintf("10.250.%d.1", number)
	err = lab.Link(lab.End{Net: pod, Name: "eth0", Addrs: []string{podAddress(number) + "/30"}},
		lab.End{Net: a.node, Name: name, Addrs: []string{here + "/30"}})
	if err != nil {
		return nil, err
	}
	return pod, pod.IP("route add default via " + here)
}

func podAddress(number byte) string { return fmt.Sprintf("10.250.%d.2", number) }

// name and address of a server.
func (a *trafficTrial) name(i int) string    { return "server-" + strconv.Itoa(i) }
func (a *trafficTrial) address(i int) string { return podAddress(byte(2 + i)) }

// whoPort is the port at which servers send their names.
const whoPort = 7070

// answer sends the name of the server to everybody who connects.
func (a *trafficTrial) answer(pod *lab.Net, name string) error {
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

// relay makes the API server reachable from the node, at the address in its kubeconfig, by copying bytes.
func (a *trafficTrial) relay() error {
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

// start runs a program on the node, or in a Pod, until the trial ends. Its log is a file of the trial.
func (a *trafficTrial) start(in *lab.Net, name, bin string, args ...string) (pid int, err error) {
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

// dead returns the ends of the logs if a measured process has ended.
func (a *trafficTrial) dead() string {
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
func (a *trafficTrial) close() error {
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
		benchrun.Progress("kept %s", a.dir)
	} else if a.dir != "" {
		errs = append(errs, os.RemoveAll(a.dir))
	}
	return errors.Join(errs...)
}

// goBuild builds a program of this module.
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

// startEdge starts what implements Services and DNS in proa.
func startEdge(ctx context.Context, a *trafficTrial) error {
	bin, err := goBuild(ctx, a.dir, "./test/bench/edge")
	if err != nil {
		return err
	}
	pid, err := a.start(a.node, "edge", bin, "-kubeconfig", a.system.Kubeconfig, "-node", benchrun.NodeName(0), "-dns", arenaDNS,
		"-service-cidr", arenaServices, "-cluster-cidr", arenaPods)
	a.edge = []int{pid}
	return err
}

// corefile is what kubeadm gives to CoreDNS, without names from outside of the cluster.
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
func startUpstreamEdge(ctx context.Context, a *trafficTrial) error {
	bins, err := upstream.Build(ctx, "kube-proxy", "coredns")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("kube-proxy needs the program nft (package nftables)")
	}
	proxy, err := a.start(a.node, "kube-proxy", bins["kube-proxy"], "--proxy-mode=nftables", "--kubeconfig="+a.system.Kubeconfig,
		"--hostname-override="+benchrun.NodeName(0),
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

// proxy returns the process that writes the rules of Services.
func (a *trafficTrial) proxy() []int { return a.edge[:1] }
func (a *trafficTrial) names() []int { return a.edge[len(a.edge)-1:] }

// services is where the Services of the arena are.
func (a *trafficTrial) services() benchrun.ResourceClient {
	return benchrun.ResourceClient{Door: a.Core, Namespace: a.namespace, Resource: "services"}
}
func (a *trafficTrial) slices() benchrun.ResourceClient {
	return benchrun.ResourceClient{Door: a.Discovery, Namespace: a.namespace, Resource: "endpointslices"}
}
