package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/credentialplugin"
	"proa.dev/cli/localcluster"
	"proa.dev/client/apireader"
	"proa.dev/trace"
	"proa.dev/why"
)

func applyCommand() command.Command {
	return command.Command{
		Name: "apply", Args: "-f FILE… [--trace]", Short: "apply manifests, and follow what happens then", Raw: true,
		Long: `
Runs "kubectl apply" as "proa kubectl apply" does, with all of its flags. With --trace it then follows what was applied: it shows the
trace of each object that changed until the object is ready, as "proa trace --live" does.

  proa apply -f web.yaml --trace

The exit code is that of kubectl, and with --trace 3 when an object is not ready.`,
		Setup: func(*flag.FlagSet) func(context.Context, *command.Env, []string) error {
			return func(ctx context.Context, env *command.Env, args []string) error {
				dir, given, args := takeDataDir(args)
				args, follow, err := takeTraceFlag(args)
				if err != nil {
					return err
				}
				args = append([]string{"apply"}, args...)
				if given {
					args = append([]string{"--data-dir=" + dir}, args...)
				}
				if !follow {
					return kubectl(args)
				}
				return applyAndFollow(ctx, env, args)
			}
		},
	}
}

// traceFlag is the flag of "proa apply" that kubectl does not know.
const traceFlag = "--trace"

// takeTraceFlag takes the flag out of the arguments for kubectl, and returns its value.
func takeTraceFlag(args []string) (rest []string, follow bool, err error) {
	for _, a := range args {
		name, value, hasValue := strings.Cut(a, "=")
		switch {
		case name != traceFlag:
			rest = append(rest, a)
		case !hasValue:
			follow = true
		default:
			if follow, err = strconv.ParseBool(value); err != nil {
				return nil, false, fmt.Errorf("%s is true or false, and not %q", traceFlag, value)
			}
		}
	}
	return rest, follow, nil
}

// kubectlTarget is the cluster that arguments of kubectl are about.
type kubectlTarget struct {
	cluster    localcluster.Cluster
	kubeconfig string // empty for that of the cluster
	context    string
	namespace  string
}

// targetOf reads the flags of kubectl that choose a cluster and a namespace.
func targetOf(c localcluster.Cluster, args []string) kubectlTarget {
	t := kubectlTarget{cluster: c}
	into := map[string]*string{"--kubeconfig": &t.kubeconfig, "--context": &t.context, "--namespace": &t.namespace, "-n": &t.namespace}
	for i, a := range args {
		name, value, hasValue := strings.Cut(a, "=")
		if !hasValue && i+1 < len(args) {
			value = args[i+1]
		}
		if to := into[name]; to != nil {
			*to = value
		}
	}
	return t
}

// reader returns a reader of the cluster, and the namespace that kubectl uses.
func (t kubectlTarget) reader(ctx context.Context) (*apireader.Reader, string, error) {
	file := t.kubeconfig
	if file == "" {
		file = t.cluster.Kubeconfig()
	}
	r, err := apireader.Load(ctx, apireader.Options{Files: []string{file}, Context: t.context, RunPlugin: credentialplugin.Run})
	if err != nil {
		return nil, "", err
	}
	if t.namespace != "" {
		return r, t.namespace, nil
	}
	return r, r.Namespace, nil
}

// applyAndFollow runs kubectl apply and then follows the objects that it has changed.
func applyAndFollow(ctx context.Context, env *command.Env, args []string) error {
	dir, given, kubectlArgs := takeDataDir(args)
	c, err := localcluster.ClusterAt(dir)
	if err != nil {
		return err
	}
	if given || !namesKubeconfig(kubectlArgs) {
		if err := c.Exists(); err != nil {
			return err
		}
	}
	bin, err := findKubectl(c, true)
	if err != nil {
		return err
	}
	begin := time.Now()
	cmd := exec.CommandContext(ctx, bin, kubectlArgs...) //nolint:gosec // G204: to run kubectl as the user asks is what this command is for
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") }),
		"KUBECONFIG="+c.Kubeconfig())
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = env.In, io.MultiWriter(env.Out, &said), env.Err
	if err := cmd.Run(); err != nil {
		if exit, isExit := errors.AsType[*exec.ExitError](err); isExit {
			return command.ExitCode(max(1, exit.ExitCode()))
		}
		return err
	}
	r, namespace, err := targetOf(c, kubectlArgs).reader(ctx)
	if err != nil {
		return err
	}
	changed, missing, err := changedObjects(ctx, r, said.String(), namespace, begin)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		fmt.Fprintf(env.Out, "\nNot followed, because the server has no record of the change: %s. \"proa trace\" with the namespace may know more.\n",
			strings.Join(missing, ", "))
	}
	if len(changed)+len(missing) == 0 {
		fmt.Fprintln(env.Out, "\nNothing was changed, so there is nothing to follow.")
		return nil
	}
	return followAll(ctx, env, r, changed)
}

// followAll follows the traces of objects one after the other.
func followAll(ctx context.Context, env *command.Env, r *apireader.Reader, objects []why.Target) error {
	flags := newTraceFlags(flag.NewFlagSet("", flag.ContinueOnError))
	*flags.live = true
	var failed error
	for i := range objects {
		fmt.Fprintln(env.Out)
		err := flags.run(ctx, env, &traceReader{reader: r, target: &objects[i]})
		if exit, isExit := errors.AsType[command.ExitCode](err); isExit {
			failed = exit
		} else if err != nil {
			return err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// changedObjects returns the objects that kubectl says it has changed, in the order of its lines. The lines have no namespaces: these are
// those of the traces that began since then. A list has the latest traces only; of what is not in it there may be a trace in the namespace
// that kubectl uses. missing are the lines of objects of which there is none.
func changedObjects(ctx context.Context, r *apireader.Reader, said, namespace string, begin time.Time) (out []why.Target, missing []string,
	err error,
) {
	if served, err := (&traceReader{reader: r}).serves(ctx); err != nil {
		return nil, nil, err
	} else if !served {
		return nil, nil, errNoTraces
	}
	recent := &trace.TraceList{}
	if err := r.List(ctx, trace.TracesResource(), "", "", recent); err != nil {
		if err := r.List(ctx, trace.TracesResource(), namespace, "", recent); err != nil { // he may read those of one namespace only
			return nil, nil, err
		}
	}
	for line := range strings.Lines(said) {
		word, isChanged := changedObject(line)
		if !isChanged {
			continue
		}
		kindWord, name, _ := strings.Cut(word, "/")
		res, err := r.Resolve(ctx, kindWord)
		if err != nil {
			continue // its definition may have been deleted meanwhile
		}
		target, before := why.Target{Resource: res.GroupResource(), Kind: res.Kind, Namespace: namespace, Name: name}, len(out)
		for i := range recent.Items {
			o := recent.Items[i].Object
			if o.Name == name && o.Resource == res.Plural && o.Group == res.Group && recent.Items[i].Start.After(begin.Add(-clockSkew)) {
				target.Namespace = o.Namespace
				out = append(out, target)
			}
		}
		if len(out) > before {
			continue
		}
		if !res.Namespaced {
			target.Namespace = ""
		}
		if t, err := (&traceReader{reader: r, target: &target}).read(ctx); err == nil && t.Start.After(begin.Add(-clockSkew)) {
			out = append(out, target)
		} else {
			missing = append(missing, word)
		}
	}
	return out, missing, nil
}

// clockSkew is how far the clock of the server may be behind that of the user.
const clockSkew = time.Minute

// changedObject returns the object of a line that kubectl apply prints, as in "deployment.apps/web created".
func changedObject(line string) (object string, isChanged bool) {
	words := strings.Fields(line)
	if len(words) != 2 || !strings.Contains(words[0], "/") {
		return "", false
	}
	return words[0], slices.Contains([]string{"created", "configured", "serverside-applied"}, words[1])
}
