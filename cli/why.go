package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/client/apireader"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why"
	"proa.dev/why/report"
)

func whyCommand() command.Command {
	return command.Command{
		Name: "why", Args: "[KIND/NAME]", Short: "say why an object is stuck, and what to do",
		Long: `
Explains why an object is not as you want it: at which of the twelve hops between "kubectl apply" and traffic it is stuck, by which
evidence, and what to do. Knows Pods, workloads, Services, Ingresses, Gateways and their routes, claims, volumes, nodes, namespaces, Jobs,
autoscalers and certificate requests; of other objects, custom ones too, it reads conditions, finalizers and Events. It reads what you may
read, changes nothing, and says what it could not see.

Without an object it lists everything that is stuck, in all namespaces unless you choose one.

  proa why pod/web
  proa why deploy web -n shop
  proa why                       everything that is stuck
  kubectl proa-why pod/web       as a plugin: link proa to kubectl-proa_why in your PATH

The exit code is 0 when nothing that could be read is stuck, and 3 when something is.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			flags := newReaderFlags(fs)
			output := command.OutputFlag(fs)
			return func(ctx context.Context, env *command.Env, args []string) error {
				format, err := output()
				if err != nil {
					return err
				}
				r, namespace, err := flags.open(ctx, env)
				if err != nil {
					return err
				}
				asker := &why.Asker{Cluster: r, Now: time.Now()}
				if len(args) == 0 {
					if *flags.namespace == "" {
						namespace = ""
					}
					if _, err := r.Resources(ctx); err != nil { // a server that does not answer has not said that nothing is stuck
						return err
					}
					if err := checkNamespace(ctx, r, namespace); err != nil {
						return err
					}
					return listStuck(ctx, env, asker, namespace, format)
				}
				target, err := findTarget(ctx, r, args, namespace)
				if err != nil {
					return err
				}
				err = explain(ctx, env, asker, *target, format)
				if apierrors.IsNotFound(err) {
					err = cmp.Or(checkNamespace(ctx, r, target.Namespace), err)
				}
				return err
			}
		},
	}
}

// checkNamespace returns an error if a namespace does not exist. Whoever may not read namespaces is not told.
func checkNamespace(ctx context.Context, r *apireader.Reader, name string) error {
	var out map[string]any
	if name == "" || !apierrors.IsNotFound(r.Get(ctx, gr.Namespaces, "", name, &out)) {
		return nil
	}
	return fmt.Errorf("there is no namespace %q; \"kubectl get namespaces\" lists those that there are", name)
}

// exitStuck is the exit code of "proa why" when something is stuck.
const exitStuck = command.ExitCode(3)

// explain prints why one object is as it is.
func explain(ctx context.Context, env *command.Env, asker *why.Asker, target why.Target, format string) error {
	a, err := asker.Explain(ctx, target)
	if err != nil {
		return err
	}
	if format == "json" {
		err = command.WriteJSON(env.Out, a)
	} else {
		report.Write(env.Out, a, asker.Now, command.Printable)
	}
	if err == nil && a.State == why.Stuck {
		err = exitStuck
	}
	return err
}

// findTarget reads KIND/NAME or KIND NAME.
func findTarget(ctx context.Context, r *apireader.Reader, args []string, namespace string) (*why.Target, error) {
	word, name, slash := strings.Cut(args[0], "/")
	switch {
	case slash && len(args) == 1:
	case !slash && len(args) == 2:
		name = args[1]
	default:
		return nil, errors.New("name one object, as KIND/NAME or KIND NAME: pod/web")
	}
	if word == "" || name == "" {
		return nil, fmt.Errorf("%q is not an object; write KIND/NAME, as pod/web", strings.Join(args, " "))
	}
	res, err := r.Resolve(ctx, word)
	if err != nil {
		return nil, err
	}
	t := &why.Target{Resource: res.GroupResource(), Kind: res.Kind, Name: name}
	if res.Namespaced {
		if namespace == "" {
			return nil, fmt.Errorf("%s belong to a namespace; name it with -n", res.Plural)
		}
		t.Namespace = namespace
	}
	return t, nil
}

// stuckList is everything that is stuck, for programs.
type stuckList struct {
	Stuck  []*why.Answer `json:"stuck"`
	Unseen []string      `json:"unseen,omitempty"`
}

// listStuck prints everything that is stuck.
func listStuck(ctx context.Context, env *command.Env, asker *why.Asker, namespace, format string) error {
	answers, unseen := asker.Stuck(ctx, namespace)
	switch {
	case format == "json":
		list := stuckList{Stuck: answers, Unseen: unseen}
		if list.Stuck == nil {
			list.Stuck = []*why.Answer{}
		}
		if err := command.WriteJSON(env.Out, list); err != nil {
			return err
		}
	case len(answers) == 0 && len(unseen) == 0:
		fmt.Fprintln(env.Out, "Nothing is stuck.")
	default:
		if len(answers) == 0 {
			fmt.Fprintln(env.Out, "Nothing that could be read is stuck.")
		}
		for _, a := range answers {
			fmt.Fprintln(env.Out, command.Printable(report.Headline(a)))
		}
		for _, u := range unseen {
			fmt.Fprintln(env.Out, "not seen: "+command.Printable(u))
		}
		if len(answers) > 0 {
			first := answers[0].Object
			where := ""
			if first.Namespace != "" {
				where = " -n " + first.Namespace
			}
			fmt.Fprintf(env.Out, "\n\"%s why %s%s\" shows the evidence and what to do.\n", localcluster.Program(),
				command.Printable(first.String()), command.Printable(where))
		}
	}
	if slices.ContainsFunc(answers, func(a *why.Answer) bool { return a.State == why.Stuck }) {
		return exitStuck
	}
	return nil
}
