package envtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/proatest"
)

// The environment variables of envtest that have an effect here too.
const (
	envUseExistingCluster = "USE_EXISTING_CLUSTER"
	envStartTimeout       = "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT"
	envAttachOutput       = "KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT"
)

// StartTimeout and StopTimeout are seconds that suites give to their first and last steps.
const (
	StartTimeout = 60
	StopTimeout  = 60
)

// defaultTimeout is how long the start of the control plane, and the creation of the namespace default, may take.
const defaultTimeout = 20 * time.Second

// Environment is a control plane for the tests of an operator, with its definitions and webhooks.
type Environment struct {
	// ControlPlane has the arguments of the API server, and its address after Start. Paths of programs in it have no effect.
	ControlPlane ControlPlane

	// Scheme tells which custom resources are converted by the operator's webhook: those of which it has a Hub, and other versions that
	// convert to it. Nil is the Scheme of client-go.
	Scheme *runtime.Scheme

	// Config has the address of the API server and the credentials of an administrator. Start sets it, unless an existing cluster
	// is used.
	Config *rest.Config

	// KubeConfig is the same as a kubeconfig file.
	KubeConfig []byte

	// CRDInstallOptions says which CustomResourceDefinitions to install, and how.
	CRDInstallOptions CRDInstallOptions

	// WebhookInstallOptions says which webhook configurations to install, and where the webhooks are served.
	WebhookInstallOptions WebhookInstallOptions

	// ErrorIfCRDPathMissing makes it an error if a path of definitions does not exist.
	ErrorIfCRDPathMissing bool

	// CRDs and CRDDirectoryPaths are definitions to install besides those of CRDInstallOptions. After Start CRDs are
	// all that were installed.
	CRDs              []*apiextensionsv1.CustomResourceDefinition
	CRDDirectoryPaths []string

	// DownloadBinaryAssets, DownloadBinaryAssetsVersion, DownloadBinaryAssetsIndexURL and BinaryAssetsDirectory have no effect: there is
	// nothing to download.
	DownloadBinaryAssets         bool
	DownloadBinaryAssetsVersion  string
	DownloadBinaryAssetsIndexURL string
	BinaryAssetsDirectory        string

	// UseExistingCluster makes the environment use the cluster of Config or of the user's kubeconfig instead of starting a control
	// plane. The environment variable USE_EXISTING_CLUSTER=true has the same effect.
	UseExistingCluster *bool

	// ControlPlaneStartTimeout bounds the start. Zero is the environment variable KUBEBUILDER_CONTROLPLANE_START_TIMEOUT, or 20 seconds.
	// ControlPlaneStopTimeout has no effect: Stop waits at most two seconds for requests.
	ControlPlaneStartTimeout time.Duration
	ControlPlaneStopTimeout  time.Duration

	// AttachControlPlaneOutput writes the log of the control plane to standard error.
	AttachControlPlaneOutput bool

	// Options change the cluster; envtest does not have them. Without any it keeps its objects in memory, runs every controller and has
	// no nodes.
	Options []proatest.Option
}

// Start starts the control plane, installs definitions and webhooks, and returns Config.
func (te *Environment) Start() (*rest.Config, error) {
	if err := addToScheme(); err != nil {
		return nil, err
	}
	if err := te.connect(); err != nil {
		return nil, err
	}
	if err := te.prepare(); err != nil {
		// Suites do not call Stop when Start has failed.
		return nil, errors.Join(err, te.Stop())
	}
	return te.Config, nil
}

// connect starts the control plane, or finds the one to use, and sets Config.
func (te *Environment) connect() (err error) {
	if !te.useExistingCluster() {
		if te.ControlPlane.cluster, err = te.launch(); err != nil {
			return fmt.Errorf("start the control plane: %w", err)
		}
		admin, err := te.AddUser(User{Name: "admin", Groups: []string{"system:masters"}}, &rest.Config{QPS: 1000, Burst: 2000})
		if err != nil {
			return err
		}
		te.Config, te.KubeConfig = admin.Config(), nil
		return te.ControlPlane.publish()
	}
	if te.Config == nil {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
		if te.Config, err = loader.ClientConfig(); err != nil {
			return fmt.Errorf("find the existing cluster: %w", err)
		}
	}
	return nil
}

// launch starts the control plane.
func (te *Environment) launch() (*proatest.Cluster, error) {
	timeout := te.ControlPlaneStartTimeout
	if text := os.Getenv(envStartTimeout); timeout == 0 && text != "" {
		var err error
		if timeout, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("%s: %w", envStartTimeout, err)
		}
	}
	server := te.ControlPlane.GetAPIServer()
	settings, err := server.settings()
	if err != nil {
		return nil, err
	}
	output := server.Err
	if output == nil && (te.AttachControlPlaneOutput || os.Getenv(envAttachOutput) == "true") {
		output = os.Stderr
	}
	log := slog.New(slog.DiscardHandler)
	if output != nil {
		log = slog.New(slog.NewTextHandler(output, nil))
	}
	ctx, cancel := context.WithTimeout(background(), cmp.Or(timeout, defaultTimeout))
	defer cancel()
	return proatest.Launch(ctx, log, append([]proatest.Option{proatest.Memory(), settings}, te.Options...)...)
}

// prepare fills the fields that suites read, and installs definitions and webhooks.
func (te *Environment) prepare() (err error) {
	if len(te.KubeConfig) == 0 {
		if te.KubeConfig, err = kubeconfigOf(te.Config); err != nil {
			return err
		}
	}
	te.Scheme = cmp.Or(te.Scheme, scheme.Scheme)
	if err := te.waitForDefaultNamespace(); err != nil {
		return err
	}
	// Definitions need the certificate and the address of the webhooks that convert their objects.
	if err := te.WebhookInstallOptions.PrepWithoutInstalling(); err != nil {
		return err
	}
	o := &te.CRDInstallOptions
	o.Scheme = cmp.Or(o.Scheme, te.Scheme)
	o.CRDs = mergeDefinitions(o.CRDs, te.CRDs)
	o.Paths = mergePaths(o.Paths, te.CRDDirectoryPaths)
	o.ErrorIfPathMissing = te.ErrorIfCRDPathMissing
	o.WebhookOptions = te.WebhookInstallOptions
	if te.CRDs, err = InstallCRDs(te.Config, *o); err != nil {
		return fmt.Errorf("install CustomResourceDefinitions: %w", err)
	}
	if err := te.WebhookInstallOptions.Install(te.Config); err != nil {
		return fmt.Errorf("install webhook configurations: %w", err)
	}
	return nil
}

// waitForDefaultNamespace waits until objects can be created in the namespace default.
func (te *Environment) waitForDefaultNamespace() error {
	c, err := clientFor(te.Config, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return poll(50*time.Millisecond, defaultTimeout, "the namespace default", func(ctx context.Context) (bool, error) {
		return c.Get().Resource("namespaces").Name("default").Do(ctx).Error() == nil, nil
	})
}

// Stop ends the control plane and removes its files. Definitions are deleted before that if CRDInstallOptions.CleanUpAfterUse says so.
func (te *Environment) Stop() error {
	var failed error
	if te.CRDInstallOptions.CleanUpAfterUse && te.Config != nil {
		failed = UninstallCRDs(te.Config, te.CRDInstallOptions)
	}
	failed = errors.Join(failed, te.WebhookInstallOptions.Cleanup())
	if c := te.ControlPlane.cluster; c != nil {
		c.Stop()
		te.ControlPlane.cluster = nil
	}
	return failed
}

// AddUser returns a user with a client certificate. Fields of base other than the address and credentials are kept; base may be
// nil.
func (te *Environment) AddUser(user User, base *rest.Config) (*AuthenticatedUser, error) {
	return te.ControlPlane.AddUser(user, base)
}

func (te *Environment) useExistingCluster() bool {
	if te.UseExistingCluster == nil {
		return strings.EqualFold(os.Getenv(envUseExistingCluster), "true")
	}
	return *te.UseExistingCluster
}

// SetupEnvtestDefaultBinaryAssetsDirectory returns an empty path: there are no programs to find.
func SetupEnvtestDefaultBinaryAssetsDirectory() (string, error) { return "", nil }
