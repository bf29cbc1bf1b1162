// Package credentialplugin runs the programs that kubeconfigs name to get the credentials of a user, as kubectl does.
package credentialplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"proa.dev/client/apireader"
)

const credentialKind = "ExecCredential"

// credential is an ExecCredential: what a plugin is asked in its environment, and what it prints.
type credential struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       *spec  `json:"spec,omitempty"`
	Status     struct {
		Token   string     `json:"token,omitempty"`
		Cert    string     `json:"clientCertificateData,omitempty"`
		Key     string     `json:"clientKeyData,omitempty"`
		Expires *time.Time `json:"expirationTimestamp,omitempty"`
	} `json:"status,omitzero"`
}

type spec struct {
	Interactive bool                   `json:"interactive"`
	Cluster     *apireader.ExecCluster `json:"cluster,omitempty"`
}

// Run runs the program that a kubeconfig names for a user, and returns the credential that it prints.
func Run(ctx context.Context, e *apireader.Exec) (apireader.Credential, error) {
	if e.InteractiveMode == "Always" {
		return apireader.Credential{}, errors.New("it wants to ask at the terminal (interactiveMode: Always), which is not supported here")
	}
	question := credential{APIVersion: e.APIVersion, Kind: credentialKind, Spec: &spec{}}
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
	var answer credential
	if err := json.Unmarshal(out, &answer); err != nil {
		return apireader.Credential{}, fmt.Errorf("it did not print an ExecCredential: %w", err)
	}
	if answer.Kind != credentialKind || answer.APIVersion != e.APIVersion {
		return apireader.Credential{}, fmt.Errorf("it printed a %q of %q; the kubeconfig wants an %s of %q", answer.Kind, answer.APIVersion,
			credentialKind, e.APIVersion)
	}
	if end := answer.Status.Expires; end != nil && end.Before(time.Now()) {
		return apireader.Credential{}, fmt.Errorf("the credential that it printed expired on %s", end.Format(time.RFC3339))
	}
	return apireader.Credential{Token: answer.Status.Token, Cert: answer.Status.Cert, Key: answer.Status.Key}, nil
}
