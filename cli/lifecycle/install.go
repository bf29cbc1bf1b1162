package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	proa "proa.dev/run"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/teardown"
	"proa.dev/run/settings"
)

// service is one of the two services that "proa install" makes.
type service struct {
	name    string // of the unit, without .service
	command string
	about   string
}

// services returns the services that "proa install" can make.
func services() []service {
	return []service{
		{"proa", "server", "proa, a Kubernetes-compatible control plane with a node"},
		{"proa-agent", "agent", "proa, a node of a Kubernetes-compatible cluster"},
	}
}

func serviceOf(word string) (service, error) {
	for _, s := range services() {
		if s.command == word {
			return s, nil
		}
	}
	return service{}, errors.New("use \"server\" or \"agent\"")
}

// InstallCommand returns the command "proa install".
func InstallCommand() command.Command {
	return command.Command{
		Name: "install", Args: "server|agent", Words: []string{"server", "agent"}, Short: "make a systemd service of a server with a node, or of a node that joins a cluster",
		Long: `
"proa install server" writes a systemd unit that runs a control plane with a node on this machine, starts it, and lets it start with
the machine. Its settings are in /etc/proa/config.yaml, which is made with the flags you give here, and left alone if it exists:

  proa install server --tls-san api.example.com --listen 0.0.0.0:6443

"proa install agent" does the same for a node that joins a cluster; "proa token create" on the server's machine prints its URL and
token. The token is in /etc/proa/agent.env, which only root may read:

  proa install agent --server https://192.0.2.7:6443 --token TOKEN

The service runs the program that you are calling now, so put it where it shall stay first, such as /usr/local/bin. When the service
stops or restarts, containers keep running. "proa uninstall" takes the unit away.`,
		Settings: settings.All,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			values := command.ServerFlags(fs)
			i := installer{systemd: machineSystemd()}
			fs.StringVar(&i.server, "server", "", "for an agent: join the cluster whose API server is at `URL`; of several servers any, or all of them, separated by commas")
			fs.StringVar(&i.token, "token", os.Getenv("PROA_TOKEN"), "for an agent: the `TOKEN` that lets it join; PROA_TOKEN in the environment does too")
			fs.BoolVar(&i.noStart, "no-start", false, "write the files, and start nothing")
			return func(ctx context.Context, env *command.Env, args []string) error {
				if len(args) != 1 {
					return errors.New("use \"proa install server\" or \"proa install agent\"")
				}
				s, err := serviceOf(args[0])
				if err != nil {
					return err
				}
				if os.Geteuid() != 0 {
					return errors.New("a service of the machine needs root; use \"sudo proa install\"")
				}
				i.env = env
				return i.install(ctx, s, values)
			}
		},
	}
}

// UninstallCommand returns the command "proa uninstall".
func UninstallCommand() command.Command {
	return command.Command{
		Name: "uninstall", Args: "[server|agent]", Words: []string{"server", "agent"},
		Short: "take away the systemd service that \"proa install\" has made",
		Long: `
Stops the service, and removes its unit. The containers of the node are stopped, each Pod with its grace period. What the cluster keeps
stays in the data folder, and the settings in /etc/proa: "proa down --purge" removes the data. Without a word, both services go, as far
as they are there.`,
		Setup: func(*flag.FlagSet) func(context.Context, *command.Env, []string) error {
			return func(ctx context.Context, env *command.Env, args []string) error {
				if len(args) > 1 {
					return errors.New("use \"proa uninstall\", \"proa uninstall server\" or \"proa uninstall agent\"")
				}
				if len(args) == 0 {
					args = []string{"server", "agent"}
				}
				if os.Geteuid() != 0 {
					return errors.New("a service of the machine needs root; use \"sudo proa uninstall\"")
				}
				i := installer{systemd: machineSystemd(), env: env}
				return i.uninstall(ctx, args)
			}
		},
	}
}

// installer installs and removes services.
type installer struct {
	systemd
	env           *command.Env
	server, token string
	noStart       bool
}

func (i *installer) configFile() string { return filepath.Join(i.root, "etc/proa/config.yaml") }
func (i *installer) envFile() string    { return filepath.Join(i.root, "etc/proa/agent.env") }

func (i *installer) install(ctx context.Context, s service, values settings.Values) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find out which program this is: %w", err)
	}
	args, dataDir, err := i.configure(s, values)
	if err != nil {
		return err
	}
	text := unit(s, program, args, dataDir)
	if err := os.MkdirAll(filepath.Dir(i.unitFile(s)), 0o755); err != nil { //nolint:gosec // the folder of systemd is for everybody
		return err
	}
	if err := os.WriteFile(i.unitFile(s), []byte(text), 0o644); err != nil { //nolint:gosec // units are for everybody
		return fmt.Errorf("write the unit: %w", err)
	}
	fmt.Fprintf(i.env.Out, "Wrote %s\n", i.unitFile(s))
	if i.noStart {
		return nil
	}
	if err := i.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := i.systemctl(ctx, "enable", "--now", s.name); err != nil {
		return err
	}
	fmt.Fprintf(i.env.Out, "Started %[1]s, now and with the machine.\n\nNext:\n  systemctl status %[1]s\n  journalctl -u %[1]s -f\n", s.name)
	if s.command == "server" {
		fmt.Fprintf(i.env.Out, "  %s kubectl get nodes\n", program)
	}
	return nil
}

// configure writes the files that the service reads, and returns the arguments of its command and its data folder.
func (i *installer) configure(s service, values settings.Values) (args []string, dataDir string, err error) {
	if err := values.Absolute(); err != nil {
		return nil, "", err
	}
	if s.command == "agent" {
		return i.configureAgent(values)
	}
	if i.server != "" {
		return nil, "", errors.New("--server is for \"proa install agent\"")
	}
	args = []string{"server", "--config", i.configFile()}
	if _, err := os.Lstat(i.configFile()); err == nil {
		if len(values) > 0 {
			return nil, "", fmt.Errorf("%s exists, and flags do not change it; edit it, or move it away", i.configFile())
		}
		fmt.Fprintf(i.env.Out, "Using %s, which was there\n", i.configFile())
		c, err := proa.Load(i.configFile(), nil)
		return args, c.DataDir, err
	}
	if len(values["node"]) == 0 && len(values["simulate"]) == 0 {
		values["node"] = []string{settings.DefaultNodeName()}
	}
	c, err := proa.Load("", values)
	if err == nil {
		err = cmp.Or(datafolder.CheckForeign(c.DataDir), datafolder.CheckVersion(c.DataDir))
	}
	if err != nil {
		return nil, "", err
	}
	data, err := values.Format()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(i.configFile()), 0o755) //nolint:gosec // settings are no secrets
	}
	if err == nil {
		head := "# Settings of the service \"proa\". \"proa config\" prints every setting; restart the service after a change.\n"
		err = os.WriteFile(i.configFile(), append([]byte(head), data...), 0o600)
	}
	if err != nil {
		return nil, "", fmt.Errorf("write the settings: %w", err)
	}
	fmt.Fprintf(i.env.Out, "Wrote %s\n", i.configFile())
	return args, c.DataDir, nil
}

// configureAgent writes the token into a file that only root may read, because everybody may read the unit.
func (i *installer) configureAgent(values settings.Values) (args []string, dataDir string, err error) {
	c, err := settings.LoadAgent(settings.AgentCluster{Server: i.server, Token: i.token}, values)
	if err != nil {
		return nil, "", err
	}
	if err := datafolder.CheckForeign(c.DataDir); err != nil {
		return nil, "", err
	}
	if i.token == "" {
		return nil, "", errors.New("give the join token with --token; \"proa token create\" on the server's machine makes one")
	}
	known := settings.ForAgents()
	args = []string{"agent", "--server", i.server}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(known, func(s settings.Setting) bool { return s.Name == name }) {
			return nil, "", fmt.Errorf("--%s is for a server, and an agent does not have it", name)
		}
		for _, v := range values[name] {
			args = append(args, "--"+name+"="+v)
		}
	}
	if err := os.MkdirAll(filepath.Dir(i.envFile()), 0o755); err != nil { //nolint:gosec // the file in it is root's alone
		return nil, "", err
	}
	if err := command.ReplaceFile(i.envFile(), []byte("PROA_TOKEN="+i.token+"\n")); err != nil {
		return nil, "", fmt.Errorf("write the token: %w", err)
	}
	fmt.Fprintf(i.env.Out, "Wrote %s\n", i.envFile())
	return args, c.DataDir, nil
}

// madeBy begins the units of "proa install". The data folder follows it.
const madeBy = `# Made by "proa install", removed by "proa uninstall". The data folder is `

// unit returns the text of a systemd unit. Containers and their runtime outlive the service's process, so that it can
// be restarted.
func unit(s service, program string, args []string, dataDir string) string {
	words := []string{systemdQuote(program)}
	for _, a := range args {
		words = append(words, systemdQuote(a))
	}
	environment := ""
	if s.command == "agent" {
		environment = "EnvironmentFile=/etc/proa/agent.env\n"
	}
	return madeBy + dataDir + `
[Unit]
Description=` + s.about + `
Wants=network-online.target
After=network-online.target

[Service]
` + environment + `ExecStart=` + strings.Join(words, " ") + `
Restart=always
RestartSec=1
# Containers, and what runs them, go on while the service restarts.
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
TimeoutStopSec=90

[Install]
WantedBy=multi-user.target
`
}

// systemdQuote quotes a word for systemd, to which %, $ and backslashes are special.
func systemdQuote(word string) string {
	word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\n", `\n`).Replace(word)
	if strings.ContainsAny(word, " \t'\";") || word == "" {
		return `"` + word + `"`
	}
	return word
}

func (i *installer) uninstall(ctx context.Context, words []string) error {
	var removed []string
	for _, word := range words {
		s, err := serviceOf(word)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(i.unitFile(s))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		dir, isOwn := dataFolderOf(text)
		if !isOwn {
			return fmt.Errorf("%s was not made by \"proa install\"; remove it yourself", i.unitFile(s))
		}
		if err := i.stopService(ctx, s, localcluster.Cluster{Dir: dir}); err != nil {
			return err
		}
		if err := os.Remove(i.unitFile(s)); err != nil {
			return fmt.Errorf("remove the unit: %w", err)
		}
		fmt.Fprintf(i.env.Out, "Removed %s\n", i.unitFile(s))
		if i.isRunning() {
			if err := i.systemctl(ctx, "daemon-reload"); err != nil {
				return err
			}
		}
		removed = append(removed, fmt.Sprintf("  %s down --purge%s\n", localcluster.Program(),
			localcluster.Cluster{Dir: dir}.CommandFlags()))
	}
	if len(removed) == 0 {
		return errors.New("there is no service that \"proa install\" has made")
	}
	fmt.Fprintf(i.env.Out, "\nWhat it kept is still there. To remove it:\n%s  rm -r %s\n", strings.Join(removed, ""),
		filepath.Dir(i.configFile()))
	return nil
}

// stopService stops a service for good: first its Pods, each with its grace period, while the agent still runs, then
// the process, then the container runtime. If the Pods are not stopped, the service stays as it was.
func (i *installer) stopService(ctx context.Context, s service, c localcluster.Cluster) error {
	if !i.isRunning() {
		fmt.Fprintln(i.env.Err, "systemd does not run this machine: if the service runs, \"proa down\" stops it.")
		return nil
	}
	var stopped map[string]bool
	if c.Exists() == nil {
		stopping, err := stopPods(ctx, i.env, c, downOptions{limit: longestStop})
		if err != nil {
			return err
		}
		defer stopping.Close()
		stopped = stopping.Stopped
	}
	if err := i.systemctl(ctx, "disable", "--now", s.name); err != nil {
		return err
	}
	if c.Exists() != nil {
		return nil
	}
	if _, err := teardown.StopAgents(ctx, c.Dir); err != nil {
		return err
	}
	return haltNodes(ctx, i.env, c, longestStop, stopped)
}
