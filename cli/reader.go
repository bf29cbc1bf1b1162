package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/cli/userkubeconfig"
	"proa.dev/client/apireader"
)

// readerFlags are the flags of commands that read from a cluster as kubectl does: the one of the data folder, or the one of a kubeconfig.
type readerFlags struct {
	data                           func() (localcluster.Cluster, error)
	kubeconfig, context, namespace *string
	allNamespaces                  *bool
}

func newReaderFlags(fs *flag.FlagSet) *readerFlags {
	f := &readerFlags{
		data:          localcluster.AnyDataDirFlag(fs),
		kubeconfig:    fs.String("kubeconfig", "", "read from the cluster of the kubeconfig `FILE` in place of the one in the data folder"),
		context:       fs.String("context", "", "read from the cluster of the context `NAME` of the kubeconfig"),
		namespace:     fs.String("namespace", "", "look in the namespace `NAME`; empty for that of the kubeconfig's context"),
		allNamespaces: fs.Bool("all-namespaces", false, "look in all namespaces"),
	}
	fs.StringVar(f.namespace, "n", "", "short for --namespace `NAME`")
	fs.BoolVar(f.allNamespaces, "A", false, "short for --all-namespaces")
	return f
}

// open returns a reader of the chosen cluster and the namespace to look in. A kubectl plugin, or whoever names a
// kubeconfig or a context, gets the cluster of the kubeconfig; otherwise it is the cluster of the data folder, and
// where there is none the kubeconfig again.
func (f *readerFlags) open(ctx context.Context, env *command.Env) (r *apireader.Reader, namespace string, err error) {
	files := []string{*f.kubeconfig}
	if *f.kubeconfig == "" {
		if files, err = userkubeconfig.Files(); err != nil {
			return nil, "", err
		}
		if *f.context == "" && !env.Plugin {
			c, err := f.data()
			if err != nil {
				return nil, "", err
			}
			if command.FileExists(c.Kubeconfig()) {
				files = []string{c.Kubeconfig()}
			} else if err := c.Exists(); errors.Is(err, localcluster.ErrNoRights) {
				return nil, "", err
			}
		}
	}
	r, err = apireader.Load(ctx, apireader.Options{Files: files, Context: *f.context, RunPlugin: runCredentialPlugin})
	if err != nil {
		return nil, "", err
	}
	namespace = *f.namespace
	switch {
	case *f.allNamespaces:
		namespace = ""
	case namespace == "":
		namespace = r.Namespace
	}
	return r, namespace, nil
}

const execCredentialKind = "ExecCredential"

// execCredential is what a credential plugin is asked in its environment, and what it prints.
type execCredential struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Spec       *execSpec `json:"spec,omitempty"`
	Status     struct {
		Token   string     `json:"token,omitempty"`
		Cert    string     `json:"clientCertificateData,omitempty"`
		Key     string     `json:"clientKeyData,omitempty"`
		Expires *time.Time `json:"expirationTimestamp,omitempty"`
	} `json:"status,omitzero"`
}

type execSpec struct {
	Interactive bool                   `json:"interactive"`
	Cluster     *apireader.ExecCluster `json:"cluster,omitempty"`
}

// runCredentialPlugin runs the program of a kubeconfig that knows a user's credentials.
func runCredentialPlugin(ctx context.Context, e *apireader.Exec) (apireader.Credential, error) {
	if e.InteractiveMode == "Always" {
		return apireader.Credential{}, errors.New("it wants to ask at the terminal (interactiveMode: Always), which is not supported here")
	}
	question := execCredential{APIVersion: e.APIVersion, Kind: execCredentialKind, Spec: &execSpec{}}
	if e.ProvideClusterInfo {
		question.Spec.Cluster = &e.Cluster
	}
	info, err := json.Marshal(question)
	if err != nil {
		return apireader.Credential{}, err
	}
	cmd := exec.CommandContext(ctx, e.Command, e.Args...) //nolint:gosec // G204: the user's own kubeconfig names the program
	cmd.Env = append(os.Environ(), "KUBERNETES_EXEC_INFO="+string(info))
	for _, v := range e.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.WaitDelay = time.Second // what the program has started may hold its output open
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		return apireader.Credential{}, fmt.Errorf("%w: %s", err, strings.TrimSpace(words.String()))
	}
	var answer execCredential
	if err := json.Unmarshal(out, &answer); err != nil {
		return apireader.Credential{}, fmt.Errorf("it did not print an ExecCredential: %w", err)
	}
	if answer.Kind != execCredentialKind || answer.APIVersion != e.APIVersion {
		return apireader.Credential{}, fmt.Errorf("it printed a %q of %q; the kubeconfig wants an %s of %q", answer.Kind, answer.APIVersion,
			execCredentialKind, e.APIVersion)
	}
	if end := answer.Status.Expires; end != nil && end.Before(time.Now()) {
		return apireader.Credential{}, fmt.Errorf("the credential that it printed expired on %s", end.Format(time.RFC3339))
	}
	return apireader.Credential{Token: answer.Status.Token, Cert: answer.Status.Cert, Key: answer.Status.Key}, nil
}
