package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/cli/command"
	"proa.dev/client/apireader"
	"proa.dev/trace"
	"proa.dev/trace/chrometrace"
	"proa.dev/trace/otlp"
	"proa.dev/trace/waterfall"
	"proa.dev/why"
)

func traceCommand() command.Command {
	return command.Command{
		Name: "trace", Args: "[KIND/NAME]", Short: "show what happened to an object, hop by hop",
		Long: `
Shows what happened from the request that last changed an object to the Pods that serve: each of the twelve hops with its time, waiting
apart from working, what caused what, and the critical path with its sum in one sentence. An object that is not ready shows at which hop
it is. The server keeps the records of the latest changes; it shows you those about objects that you may get. Without an object it lists
the latest traces.

  proa trace deploy/web
  proa trace pod/web-1 -n shop --live      follow it until it is ready
  proa trace deploy/web -o chrome > t.json for chrome://tracing and Perfetto
  proa trace deploy/web --otlp localhost:4318
  proa trace -A                            the latest traces, as "kubectl get traces -A"
  kubectl proa-trace deploy/web            as a plugin: link proa to kubectl-proa_trace in your PATH

The exit code is 3 when the object is not ready.`,
		Setup: func(fs *flag.FlagSet) func(context.Context, *command.Env, []string) error {
			flags := newReaderFlags(fs)
			o := newTraceFlags(fs)
			return func(ctx context.Context, env *command.Env, args []string) error {
				if err := o.check(); err != nil {
					return err
				}
				r, namespace, err := flags.open(ctx, env)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					return listTraces(ctx, env, r, namespace, *o.format)
				}
				target, err := findTarget(ctx, r, args, namespace)
				if err != nil {
					return err
				}
				return o.run(ctx, env, &traceReader{reader: r, target: target, wire: *o.wire})
			}
		},
	}
}

// traceFlags are the flags that say how a trace is shown.
type traceFlags struct {
	live, wire, all *bool
	format, otlp    *string
	// otlpCA and otlpHeaders are the files for the receiver of otlp.
	otlpCA, otlpHeaders *string
}

func newTraceFlags(fs *flag.FlagSet) *traceFlags {
	return &traceFlags{
		live:   fs.Bool("live", false, "follow the trace until the object is ready"),
		wire:   fs.Bool("wire", false, "show the bodies of requests and answers too, those of Secrets never"),
		all:    fs.Bool("all", false, "show every span"),
		format: fs.String("o", "", "`FORMAT` of the output: json, chrome or otlp, or empty for people"),
		otlp:   fs.String("otlp", "", "send the trace to the OTLP receiver at `ADDRESS` too, as http://host:4318 or host:4317"),
		otlpCA: fs.String("otlp-ca-file", "", "trust the certificate authorities in `FILE` when sending to --otlp"),
		otlpHeaders: fs.String("otlp-headers-file", "",
			"send the headers in `FILE`, NAME: VALUE in each line, such as a credential, to --otlp"),
	}
}

func (o *traceFlags) check() error {
	switch f := *o.format; {
	case *o.otlp == "" && *o.otlpCA+*o.otlpHeaders != "":
		return errors.New("--otlp-ca-file and --otlp-headers-file need --otlp: say where the trace is sent")
	case f == "" || f == "json" || f == "chrome" || f == "otlp":
		return nil
	}
	return fmt.Errorf("-o takes json, chrome or otlp, but got %q", *o.format)
}

// run reads a trace, follows it if that is wanted, and prints and sends it.
func (o *traceFlags) run(ctx context.Context, env *command.Env, r *traceReader) error {
	t, err := o.follow(ctx, env, r)
	if err != nil {
		return err
	}
	if err := o.print(env, t); err != nil {
		return err
	}
	if *o.otlp != "" {
		to := otlp.Endpoint{URL: *o.otlp, CAFile: *o.otlpCA, HeadersFile: *o.otlpHeaders}
		if err := otlp.SendTo(ctx, to, t); err != nil {
			return fmt.Errorf("send the trace to %s: %w", *o.otlp, err)
		}
	}
	if t.State == trace.Running || t.State == trace.Failed {
		return exitStuck
	}
	return nil
}

// print writes a trace in the chosen format.
func (o *traceFlags) print(env *command.Env, t *trace.Trace) error {
	var data []byte
	var err error
	switch *o.format {
	case "json":
		return command.WriteJSON(env.Out, t)
	case "chrome":
		data, err = chrometrace.JSON(t)
	case "otlp":
		data, err = otlp.JSON(t)
	default:
		waterfall.Write(env.Out, t, o.look(env.Out))
		if *o.wire {
			waterfall.WriteBodies(env.Out, t, command.Printable)
		}
		return nil
	}
	if err == nil {
		_, err = env.Out.Write(append(command.PrintableJSON(data), '\n'))
	}
	return err
}

// look returns how a trace is drawn on an output.
func (o *traceFlags) look(out io.Writer) waterfall.Options {
	look := waterfall.Options{All: *o.all, Printable: command.Printable, ASCII: !hasUnicode()}
	if width := terminalWidth(out); width > 0 {
		look.Width = width
		look.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return look
}

// hasUnicode tells whether the user's locale has more characters than ASCII; without a locale it is assumed.
func hasUnicode() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToUpper(v)
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return true
}

// terminalWidth returns the width of a terminal; 0 if the output is none.
func terminalWidth(out io.Writer) int {
	f, isFile := out.(*os.File)
	if !isFile {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 0
	}
	return int(size.Col)
}

// follow reads a trace; with --live again and again until the object is ready, or its request was refused. On a terminal the trace is
// drawn each time, elsewhere a line says when something has changed.
func (o *traceFlags) follow(ctx context.Context, env *command.Env, r *traceReader) (*trace.Trace, error) {
	isTerminal := terminalWidth(env.Out) > 0 && *o.format == ""
	var last *trace.Trace
	said := ""
	feed := newTraceFeed(r, *o.live)
	defer func() { feed.stop() }()
	for {
		t, err := feed.next(ctx)
		switch {
		case err == nil:
			last = t
		case ctx.Err() != nil && last != nil:
			return last, nil
		case !*o.live || !apierrors.IsNotFound(err):
			return nil, err
		}
		if !*o.live || last != nil && last.State != trace.Running {
			if isTerminal && said != "" {
				fmt.Fprint(env.Out, clearScreen)
			}
			return feed.whole(ctx, last)
		}
		state := "waiting for a request about " + r.target.Kind + " " + r.target.Name
		if last != nil {
			state = progress(last)
		}
		switch {
		case isTerminal && last != nil:
			fmt.Fprint(env.Out, clearScreen)
			waterfall.Write(env.Out, last, o.look(env.Out))
		case state != said:
			fmt.Fprintln(env.Err, command.Printable(state))
		}
		if said = state; ctx.Err() != nil {
			if last == nil {
				return nil, ctx.Err()
			}
			return last, nil
		}
	}
}

// clearScreen moves the cursor to the corner of the terminal and clears what is below it.
const clearScreen = "\x1b[H\x1b[J"

// progress says how far a trace has come, without times that change by themselves.
func progress(t *trace.Trace) string {
	names := make([]string, 0, len(t.Milestones))
	for _, m := range t.Milestones {
		names = append(names, m.Name)
	}
	text := strings.Join(names, ", ")
	if at, _, found := strings.Cut(t.Stuck, ", "); found {
		text += "; " + at
	}
	return text
}

// listTraces prints the latest traces of a namespace, or of all.
func listTraces(ctx context.Context, env *command.Env, r *apireader.Reader, namespace, format string) error {
	served, err := (&traceReader{reader: r}).serves(ctx)
	if err != nil {
		return err
	}
	if !served {
		return errNoTraces
	}
	list := &trace.TraceList{}
	if err := r.List(ctx, trace.TracesResource(), namespace, "", list); err != nil {
		return err
	}
	if format == "json" {
		return command.WriteJSON(env.Out, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(env.Out, "There is no trace: nobody has changed an object here lately that you may get.")
		return nil
	}
	w := tabwriter.NewWriter(env.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tCOMMAND\tUSER\tSTARTED\tTOOK\tSTATE")
	for i := range list.Items {
		t := &list.Items[i]
		started := t.Start.UTC().Format(time.DateTime)
		cells := []string{t.Namespace, t.Name, t.Command, t.User, started, trace.Seconds(t.Took), string(t.State)}
		fmt.Fprintln(w, strings.NewReplacer("\n", " ").Replace(command.Printable(strings.Join(cells, "\t"))))
	}
	return w.Flush()
}

// traceReader reads the trace of one object.
type traceReader struct {
	reader *apireader.Reader
	target *why.Target
	wire   bool
}

// errNoTraces is the error about a cluster whose server records no traces.
var errNoTraces = errors.New("this cluster does not record traces; that is something that clusters of proa do. \"proa why\" works here too")

// read reads the trace from the server.
func (r *traceReader) read(ctx context.Context) (*trace.Trace, error) {
	namespace, name := r.name()
	resource := trace.TracesResource()
	if r.wire {
		resource = trace.WireTracesResource()
	}
	served, err := r.serves(ctx)
	if err != nil {
		return nil, err
	}
	if !served {
		return nil, errNoTraces
	}
	t := &trace.Trace{}
	if err := r.reader.Get(ctx, resource, namespace, name, t); err != nil {
		return nil, err
	}
	return t, nil
}

// name returns the namespace and the name of the trace.
func (r *traceReader) name() (namespace, name string) {
	on := r.target.Resource
	return cmp.Or(r.target.Namespace, trace.NoNamespace), trace.Name(trace.Ref{Group: on.Group, Resource: on.Resource, Name: r.target.Name})
}

// serves tells whether the server has traces.
func (r *traceReader) serves(ctx context.Context) (bool, error) {
	all, err := r.reader.Resources(ctx)
	if err != nil {
		return false, err
	}
	for i := range all {
		if all[i].GroupResource() == trace.TracesResource() {
			return true, nil
		}
	}
	return false, nil
}
