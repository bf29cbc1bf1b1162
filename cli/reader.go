package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"

	"proa.dev/cli/command"
	"proa.dev/cli/credentialplugin"
	"proa.dev/cli/localcluster"
	"proa.dev/cli/userkubeconfig"
	"proa.dev/client/apireader"
)

// readerFlags are the flags of commands that read from a cluster as kubectl does: the one of the data folder, or the one of a kubeconfig.
type readerFlags struct {
	data                           func() (localcluster.Cluster, error)
	isDataGiven                    func() bool // --data-dir is among the flags
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
	f.isDataGiven = func() (given bool) {
		fs.Visit(func(x *flag.Flag) { given = given || x.Name == "data-dir" })
		return given
	}
	fs.StringVar(f.namespace, "n", "", "short for --namespace `NAME`")
	fs.BoolVar(f.allNamespaces, "A", false, "short for --all-namespaces")
	return f
}

// open returns a reader of the chosen cluster and the namespace to look in. A kubectl plugin, or whoever names a
// kubeconfig or a context, gets the cluster of the kubeconfig; otherwise it is the cluster of the data folder, and
// where there is none the kubeconfig again. A data folder that the user has named must have a cluster.
func (f *readerFlags) open(ctx context.Context, env *command.Env) (r *apireader.Reader, namespace string, err error) {
	file, err := f.dataKubeconfig(env)
	if err != nil {
		return nil, "", err
	}
	files := []string{cmp.Or(*f.kubeconfig, file)}
	if files[0] == "" {
		if files, err = userkubeconfig.Files(); err != nil {
			return nil, "", err
		}
	}
	r, err = apireader.Load(ctx, apireader.Options{Files: files, Context: *f.context, RunPlugin: credentialplugin.Run})
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

// dataKubeconfig returns the kubeconfig in the data folder; empty if the cluster is not that one.
func (f *readerFlags) dataKubeconfig(env *command.Env) (string, error) {
	c, err := f.data()
	if err != nil {
		return "", err
	}
	err = hasKubeconfig(c)
	switch {
	case err != nil && f.isDataGiven():
		return "", err
	case *f.kubeconfig != "" || *f.context != "" || env.Plugin:
		return "", nil
	case errors.Is(err, localcluster.ErrNoRights):
		return "", err
	case err != nil:
		return "", nil
	}
	return c.Kubeconfig(), nil
}
