package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/podrefs"
	"proa.dev/server/admissionlib"
)

// serviceAccount checks what a pod refers to: its service account must exist, and an account may limit the secrets of
// its pods.
func serviceAccount(ctx context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	added := a.Sub == "ephemeralcontainers" && a.Verb == "update"
	if !ok || !a.IsCreate() && !added {
		return nil
	}
	if admissionlib.IsMirrorPod(pod) && !added {
		if err := checkMirrorPod(pod); err != nil {
			return a.Forbid(err)
		}
		return nil
	}
	name := pod.Spec.ServiceAccountName
	if name == "" {
		return a.Forbidf("no service account specified for pod %s/%s", a.Namespace, pod.Name)
	}
	o, err := a.Server.Get(ctx, schema.GroupResource{Resource: "serviceaccounts"}, a.Namespace, name)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccount"}, name)
	}
	if err != nil {
		return a.Forbidf("error looking up service account %s/%s: %w", a.Namespace, name, err)
	}
	account, ok := o.(*corev1.ServiceAccount)
	if !ok || !limitsSecrets(account) {
		return nil
	}
	if added {
		return checkEnvSecrets(account, ephemeral(pod))
	}
	if err := checkSecrets(pod, account); err != nil {
		return a.Forbid(err)
	}
	return nil
}

// checkMirrorPod rejects mirror pods that refer to service accounts, secrets or tokens.
func checkMirrorPod(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	if podrefs.UsesSecrets(&pod.Spec) {
		return errors.New("a mirror pod may not reference secrets")
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		if slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.ServiceAccountToken != nil }) {
			return errors.New("a mirror pod may not use ServiceAccountToken volume projections")
		}
	}
	return nil
}

// limitsSecrets reports whether the pods of an account may refer only to the secrets that it names.
func limitsSecrets(account *corev1.ServiceAccount) bool {
	on, _ := strconv.ParseBool(account.Annotations["kubernetes.io/enforce-mountable-secrets"])
	return on
}

// containerGroup is a list of containers, and what error messages call them.
type containerGroup struct {
	called string
	list   []corev1.Container
}

func ephemeral(pod *corev1.Pod) containerGroup {
	g := containerGroup{called: "ephemeral container"}
	for i := range pod.Spec.EphemeralContainers {
		g.list = append(g.list, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return g
}

// checkSecrets checks the secrets of a pod against those that its account names.
func checkSecrets(pod *corev1.Pod, account *corev1.ServiceAccount) error {
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !referencesSecret(account, v.Secret.SecretName) {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
		}
	}
	for _, g := range []containerGroup{{"init container", pod.Spec.InitContainers}, {"container", pod.Spec.Containers}} {
		if err := checkEnvSecrets(account, g); err != nil {
			return err
		}
	}
	for i, ref := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, ref) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, ref.Name, account.Name)
		}
	}
	return nil
}

// checkEnvSecrets checks the secrets in the environment of containers.
func checkEnvSecrets(account *corev1.ServiceAccount, g containerGroup) error {
	for i := range g.list {
		c := &g.list[i]
		for _, env := range c.Env {
			if f := env.ValueFrom; f != nil && f.SecretKeyRef != nil && !referencesSecret(account, f.SecretKeyRef.Name) {
				return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
					g.called, c.Name, env.Name, f.SecretKeyRef.Name, account.Name)
			}
		}
		for _, from := range c.EnvFrom {
			if from.SecretRef != nil && !referencesSecret(account, from.SecretRef.Name) {
				return fmt.Errorf("%s %s with envFrom referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
					g.called, c.Name, from.SecretRef.Name, account.Name)
			}
		}
	}
	return nil
}

func referencesSecret(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret })
}
