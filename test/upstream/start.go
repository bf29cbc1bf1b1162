package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/test/ports"
)

// System is a control plane that runs as child processes of this one.
type System struct {
	Name       string
	Kubeconfig string
	Data       string        // the data folder of proa
	Ready      time.Duration // from the first process's start to /readyz answering 200
	Started    time.Time

	dir   string
	keep  bool // the folder belongs to the caller
	procs []*process
	after []func() // what is to be done once the processes have ended
}

// process is a child process whose log is in the system's folder.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// Options say what Start starts.
type Options struct {
	// Controllers, when not empty, starts a kube-controller-manager that runs
	// only these, with the rights of the administrator.
	Controllers []string
	// Whole starts a kube-controller-manager with all controllers and a
	// kube-scheduler, each under its own name and with its own rights as
	// installers set them up, and with generous client limits. Controllers is
	// ignored then.
	Whole bool
	// ManagerArgs are added to the flags of a whole system's
	// kube-controller-manager.
	ManagerArgs []string
	// Dir is the folder to use, which must be empty or not exist; Stop leaves
	// it. By default it is a temporary one, which Stop removes.
	Dir string
	// Port that the API is served at on loopback, by default a free one.
	Port int
	// ServiceCIDR defaults to 10.96.0.0/16.
	ServiceCIDR string
	// Issuer of service account tokens, by default the one proa uses.
	Issuer string
	// ExtraArgs are added to kube-apiserver's flags.
	ExtraArgs []string
}

// startLimit bounds how long a system may take until it is ready.
const startLimit = 2 * time.Minute

// Start builds, if need be, and starts upstream's etcd and kube-apiserver in a
// temporary folder. The clock starts with etcd; keys and certificates are made
// before it, so that upstream is not charged for them.
func Start(ctx context.Context, opts Options) (*System, error) {
	names := []string{"etcd", "kube-apiserver"}
	if opts.Whole || len(opts.Controllers) > 0 {
		names = append(names, "kube-controller-manager")
	}
	if opts.Whole {
		names = append(names, "kube-scheduler")
	}
	bins, err := Build(ctx, names...)
	if err != nil {
		return nil, err
	}
	free, err := ports.Reserve(3)
	if err != nil {
		return nil, err
	}
	if opts.Port != 0 {
		free[2] = opts.Port
	}
	dir, err := folder(opts.Dir)
	if err != nil {
		return nil, err
	}
	s := &System{Name: "upstream", dir: dir, keep: opts.Dir != "", Kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	if err := s.startUpstream(ctx, bins, free, opts); err != nil {
		err = fmt.Errorf("%w\n%s", err, s.logs())
		s.Stop()
		return nil, err
	}
	return s, nil
}

// folder creates the folder of a system: the given one, or a temporary one.
func folder(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "upstream-")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the folder %s is not empty", dir)
	}
	return filepath.Abs(dir)
}

func (s *System) startUpstream(ctx context.Context, bins map[string]string, free []int, opts Options) error {
	server := "https://127.0.0.1:" + strconv.Itoa(free[2])
	if err := writePKI(s.dir, server); err != nil {
		return err
	}
	etcd := "http://127.0.0.1:" + strconv.Itoa(free[0])
	s.Started = time.Now()
	if err := s.run(bins["etcd"], etcdArgs(s.dir, etcd, free[1])...); err != nil {
		return err
	}
	if err := s.poll(ctx, http.DefaultClient, etcd+"/health"); err != nil {
		return err
	}
	if err := s.run(bins["kube-apiserver"], apiserverArgs(s.dir, etcd, free[2], opts)...); err != nil {
		return err
	}
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	if opts.Whole {
		if err := s.run(bins["kube-controller-manager"], append(wholeManagerArgs(s.dir), opts.ManagerArgs...)...); err != nil {
			return err
		}
		return s.run(bins["kube-scheduler"], schedulerArgs(s.dir)...)
	}
	if len(opts.Controllers) == 0 {
		return nil
	}
	return s.run(bins["kube-controller-manager"], managerArgs(s.dir, s.Kubeconfig, opts)...)
}

func etcdArgs(dir, client string, peerPort int) []string {
	peer := "http://127.0.0.1:" + strconv.Itoa(peerPort)
	return []string{
		"--name=a", "--data-dir=" + filepath.Join(dir, "etcd"), "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=a=" + peer,
	}
}

func apiserverArgs(dir, etcd string, port int, opts Options) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	issuer := or(opts.Issuer, "https://kubernetes.default.svc.cluster.local")
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		// Endpoints may not hold a loopback address, so name one that is not.
		"--advertise-address=192.0.2.1",
		"--tls-cert-file=" + file("serving.crt"), "--tls-private-key-file=" + file("serving.key"),
		"--client-ca-file=" + file("ca.crt"),
		"--service-account-issuer=" + issuer, "--service-account-jwks-uri=" + issuer + "/openid/v1/jwks",
		"--service-account-key-file=" + file("sa.pub"), "--service-account-signing-key-file=" + file("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--enable-bootstrap-token-auth=true",
		"--service-cluster-ip-range=" + or(opts.ServiceCIDR, "10.96.0.0/16"),
		"--requestheader-client-ca-file=" + file("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + file("front-proxy.crt"), "--proxy-client-key-file=" + file("front-proxy.key"),
	}
	return append(args, opts.ExtraArgs...)
}

func managerArgs(dir, kubeconfig string, opts Options) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false",
		"--use-service-account-credentials=false",
		"--root-ca-file=" + filepath.Join(dir, "ca.crt"),
		"--service-account-private-key-file=" + filepath.Join(dir, "sa.key"),
		"--controllers=" + strings.Join(opts.Controllers, ","),
	}
}

// clientLimits let a client of the whole system send as much as it wants: the
// defaults are there to protect large clusters, and would be all one measures.
func clientLimits() []string { return []string{"--kube-api-qps=2000", "--kube-api-burst=4000"} }

func wholeManagerArgs(dir string) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return append(clientLimits(),
		"--kubeconfig="+file(managerKubeconfig), "--secure-port=0", "--leader-elect=false",
		"--controllers=*,bootstrapsigner,tokencleaner", "--use-service-account-credentials=true",
		"--root-ca-file="+file("ca.crt"), "--service-account-private-key-file="+file("sa.key"),
		"--cluster-signing-cert-file="+file("ca.crt"), "--cluster-signing-key-file="+file("ca.key"),
	)
}

func schedulerArgs(dir string) []string {
	return append(clientLimits(),
		"--kubeconfig="+filepath.Join(dir, schedulerKubeconfig), "--secure-port=0", "--leader-elect=false")
}

// StartProa starts the given proa binary with a fresh data folder.
func StartProa(ctx context.Context, bin string, args ...string) (*System, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	free, err := ports.Reserve(1)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "proa-")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	s := &System{Name: "proa", dir: dir, Data: data, Kubeconfig: filepath.Join(data, "admin.kubeconfig"), Started: time.Now()}
	args = append([]string{"server", "--data-dir", data, "--listen", "127.0.0.1:" + strconv.Itoa(free[0])}, args...)
	if err = s.run(bin, args...); err == nil {
		err = s.waitReady(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, s.logs())
		s.Stop()
		return nil, err
	}
	return s, nil
}

// run starts a child in a process group of its own, so that an interrupt at
// the terminal reaches this process, which then stops the child in order.
func (s *System) run(bin string, args ...string) error {
	p := &process{name: filepath.Base(bin), done: make(chan struct{})}
	p.log = filepath.Join(s.dir, p.name+".log")
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(bin, args...)
	p.cmd.Dir = s.dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	s.procs = append(s.procs, p)
	return nil
}

// waitReady waits for the admin kubeconfig and then for /readyz.
func (s *System) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for !written(s.Kubeconfig) {
		if err := s.pause(ctx); err != nil {
			return fmt.Errorf("wait for the admin kubeconfig: %w", err)
		}
	}
	config, err := s.Config()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	if err := s.poll(ctx, client, config.Host+"/readyz"); err != nil {
		return err
	}
	s.Ready = time.Since(s.Started)
	return nil
}

// poll asks url every few milliseconds until it answers 200.
func (s *System) poll(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := s.pause(ctx); err != nil {
			return fmt.Errorf("wait for %s: %w", url, err)
		}
	}
}

// pause waits a moment between two polls and reports why there is no use in
// another one.
func (s *System) pause(ctx context.Context) error {
	for _, p := range s.procs {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.name, p.cmd.ProcessState)
		default:
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Millisecond):
		return nil
	}
}

// Config is the client configuration of the admin, with no limit on requests.
func (s *System) Config() (*rest.Config, error) { return LoadConfig(s.Kubeconfig) }

// LoadConfig reads a kubeconfig into a client configuration with no limit on
// the rate of requests.
func LoadConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// Dir is the folder everything of the system lives in.
func (s *System) Dir() string { return s.dir }

// Pids are the process ids of the system's live processes.
func (s *System) Pids() []int {
	var pids []int
	for _, p := range s.procs {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// Log returns the end of the logs of all processes.
func (s *System) Log() string { return s.logs() }

func (s *System) logs() string {
	var b strings.Builder
	for _, p := range s.procs {
		data, err := os.ReadFile(p.log)
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", p.name, logExcerpt(data, 3000))
	}
	return b.String()
}

// logExcerpt returns the end of a log, or its part from a crash on, because the reason of a crash is followed by the
// stacks of all goroutines.
func logExcerpt(log []byte, n int) string {
	for _, word := range []string{"\npanic: ", "\nfatal error: ", "\nWARNING: DATA RACE"} {
		if _, crash, ok := bytes.Cut(log, []byte(word)); ok {
			return strings.TrimSpace(word) + string(crash[:min(len(crash), n)])
		}
	}
	return tail(log, n)
}

// Stop ends the processes, last started first, and removes their folder unless
// the caller gave it; PROA_KEEP=1 keeps it too, for a look at the logs.
func (s *System) Stop() {
	if s == nil {
		return
	}
	s.Halt()
	if s.keep {
		return
	}
	if os.Getenv("PROA_KEEP") != "" {
		fmt.Fprintf(os.Stderr, "%s: kept %s\n", s.Name, s.dir)
		return
	}
	_ = os.RemoveAll(s.dir)
}

// Halt ends the processes and leaves the folder.
func (s *System) Halt() {
	for _, p := range slices.Backward(s.procs) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
			continue
		}
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
	for _, do := range s.after {
		do()
	}
	s.after = nil
}

// Dead names the processes that ended on their own, with the end of their
// logs; it is empty while all run.
func (s *System) Dead() string {
	for _, p := range s.procs {
		select {
		case <-p.done:
			return fmt.Sprintf("%s ended: %s\n%s", p.name, p.cmd.ProcessState, s.logs())
		default:
		}
	}
	return ""
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func written(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}
