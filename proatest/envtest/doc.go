// Package envtest has the names of sigs.k8s.io/controller-runtime/pkg/envtest and runs proa in the process of the test in place of
// kube-apiserver and etcd: the suite of an operator uses it by changing that import.
//
// Environment, CRDInstallOptions, WebhookInstallOptions and the functions beside them do what those of envtest do. The control plane is a
// whole one, with controllers; Environment.Options changes that and everything else about it. What names programs and their processes is
// accepted and has no effect, or is left out: Authn, Arg, EmptyArguments, DefaultKubeAPIServerFlags, DefaultBinaryAssetsIndexURL, the
// methods Start and Stop of ControlPlane, APIServer and Etcd, and AuthenticatedUser.Kubectl.
package envtest
