package mutate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

const (
	defaultAccount = "default"
	tokenVolume    = "kube-api-access-"
	tokenPath      = "/var/run/secrets/kubernetes.io/serviceaccount"
	// tokenSeconds is an hour, and seven seconds by which the server recognises the tokens that were requested here: it
	// makes them valid for longer, for clients that do not reload them.
	tokenSeconds = 60*60 + 7

	// A new namespace gets its default account from a controller, so a pod may be created a moment earlier.
	accountPause = 20 * time.Millisecond
	accountWait  = 1500 * time.Millisecond
)

// serviceAccount sets the service account of a new pod, mounts its token, and adds its pull secrets. What such a pod
// may refer to is checked in hop 6.
func serviceAccount(ctx context.Context, a *kind.Admission) error {
	pod := admissionlib.NewPod(a)
	if pod == nil {
		return nil
	}
	if admissionlib.IsMirrorPod(pod) {
		return nil // a node would take a changed mirror pod for another one
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
		pod.Spec.DeprecatedServiceAccount = defaultAccount
	}
	name := pod.Spec.ServiceAccountName
	account, err := findAccount(ctx, a.Server, a.Namespace, name)
	if err != nil {
		return a.Forbidf("error looking up service account %s/%s: %w", a.Namespace, name, err)
	}
	applyAccount(pod, account, randomSuffix)
	return nil
}

// findAccount reads an account. It waits a little for the default one, which a controller is about to create.
func findAccount(ctx context.Context, d kind.Server, namespace, name string) (*corev1.ServiceAccount, error) {
	for waited := time.Duration(0); ; waited += accountPause {
		o, err := d.Get(ctx, schema.GroupResource{Resource: "serviceaccounts"}, namespace, name)
		if err == nil {
			account, ok := o.(*corev1.ServiceAccount)
			if !ok {
				return nil, fmt.Errorf("unexpected type %T", o)
			}
			return account, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		missing := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
		if name != defaultAccount || waited >= accountWait {
			return nil, missing
		}
		if wait.Sleep(ctx, accountPause) != nil {
			return nil, missing
		}
	}
}

// applyAccount adds what a service account gives to its pods.
func applyAccount(pod *corev1.Pod, account *corev1.ServiceAccount, suffix func() string) {
	if automounts(pod, account) {
		mountToken(pod, suffix)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
}

// automounts reports whether the token is mounted: the pod decides, then the account.
func automounts(pod *corev1.Pod, account *corev1.ServiceAccount) bool {
	for _, wish := range []*bool{pod.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if wish != nil {
			return *wish
		}
	}
	return true
}

// mountToken mounts a token in every container that has nothing else mounted in its place.
func mountToken(pod *corev1.Pod, suffix func() string) {
	var name string
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, tokenVolume) })
	if at >= 0 {
		name = pod.Spec.Volumes[at].Name
	} else {
		name = tokenVolume + suffix()
	}
	needed := false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
				needed = true
			}
		}
	}
	if needed && at < 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenSource()}})
	}
}

// tokenSource returns what a pod needs to talk to the API server: its token, the certificate authority of the server,
// its namespace.
func tokenSource() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}

// randomSuffix returns five characters that spell no words.
func randomSuffix() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}
