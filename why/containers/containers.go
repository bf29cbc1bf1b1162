// Package containers explains why the containers of a Pod that has a node do not run or are not ready.
package containers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/messages"
)

// Explainer explains the containers of Pods.
type Explainer struct {
	*lookup.Reader
	// Now is the time of the question.
	Now time.Time
}

// Explain returns an answer when a container of a bound Pod does not run or is not ready, and nil when all are. Init
// containers come first, because the others wait for them.
func (r *Explainer) Explain(ctx context.Context, p *corev1.Pod, a *answer.Answer, events []lookup.Event) *answer.Answer {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if done := c.State.Terminated; done != nil && done.ExitCode == 0 {
			continue
		}
		if sidecar(p, c.Name) && c.State.Running != nil && (c.Started == nil || *c.Started) {
			continue
		}
		if c.State.Running != nil {
			a.State = answer.Waiting
			a.Cause = "The Pod waits for its init container " + c.Name + ", which has been running for " +
				answer.Ago(r.Now, c.State.Running.StartedAt.Time) + "."
			return a.At(hop.Node).Because(a.Object, "status.initContainerStatuses["+c.Name+"].state.running", "",
				c.State.Running.StartedAt.Time).
				Do("kubectl logs %s%s -c %s -f", p.Name, answer.InNamespace(p.Namespace), c.Name)
		}
		return r.container(ctx, p, c, "init container", a, events)
	}
	var unready *corev1.ContainerStatus
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if end := c.State.Terminated; c.State.Waiting != nil || end != nil && (end.ExitCode != 0 || restarts(p, end)) {
			return r.container(ctx, p, c, "container", a, events)
		}
		if !c.Ready && c.State.Running != nil && unready == nil {
			unready = c
		}
	}
	if unready != nil {
		return r.unready(p, unready, a, events)
	}
	for _, c := range p.Status.ContainerStatuses {
		if end := c.State.Terminated; end != nil && end.ExitCode == 0 {
			a.State = answer.Waiting
			a.Cause = "The container " + c.Name + " has finished, so that the Pod is no longer ready; the other containers still run."
			return a.At(hop.Node).Because(a.Object, statusField(p, c.Name)+".state.terminated", Terminated(end), end.FinishedAt.Time)
		}
	}
	return nil
}

// restarts tells whether the node starts a container again that has ended.
func restarts(p *corev1.Pod, end *corev1.ContainerStateTerminated) bool {
	switch p.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return end.ExitCode != 0
	}
	return true
}

// sidecar tells whether an init container is one that keeps running beside the others.
func sidecar(p *corev1.Pod, name string) bool {
	i := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	return i >= 0 && p.Spec.InitContainers[i].RestartPolicy != nil &&
		*p.Spec.InitContainers[i].RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// container explains a container that does not run.
func (r *Explainer) container(ctx context.Context, p *corev1.Pod, c *corev1.ContainerStatus, what string, a *answer.Answer,
	events []lookup.Event) *answer.Answer {
	a.At(hop.Node)
	name := "The " + what + " " + c.Name
	if end := c.State.Terminated; end != nil {
		a.Cause = name + " has ended and is about to be started again: " + Ended(c.Name, end) + "."
		if !restarts(p, end) && what == "container" {
			a.Cause = name + " has ended and is not started again, because the restart policy is " + string(p.Spec.RestartPolicy) + ": " +
				Ended(c.Name, end) + "."
			return a.Because(a.Object, statusField(p, c.Name)+".state.terminated", Terminated(end), end.FinishedAt.Time).
				Do("kubectl logs %s%s -c %s", p.Name, answer.InNamespace(p.Namespace), c.Name)
		}
		return r.crashed(p, c, end, a, events)
	}
	w := c.State.Waiting
	if w == nil {
		a.State, a.Cause = answer.Unknown, name+" has no state yet."
		return a
	}
	field := statusField(p, c.Name) + ".state.waiting"
	a.Because(a.Object, field+".reason", w.Reason, time.Time{})
	if w.Message != "" {
		a.Because(a.Object, field+".message", w.Message, time.Time{})
	}
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed":
		return r.image(ctx, p, c, w, a, events)
	case "CrashLoopBackOff":
		if last := c.LastTerminationState.Terminated; last != nil {
			a.Cause = name + " keeps ending, and is started again after a growing pause: " + Ended(c.Name, last) + "."
			return r.crashed(p, c, last, a, events)
		}
		a.Cause = name + " keeps ending, and is started again after a growing pause; how it ended is not known."
		return a.Do("kubectl logs %s%s -c %s --previous", p.Name, answer.InNamespace(p.Namespace), c.Name)
	case "SetAside":
		a.Cause = name + " is not started, because the Pod is set aside: " + answer.Sentence(w.Message) + "."
		return a.Do("change the spec of the Pod, or make another Pod in its place; the message says how an administrator has this one tried again")
	case "CreateContainerConfigError":
		return configError(a, name, w.Message)
	case "CreateContainerError", "RunContainerError", "StartError", "PreCreateHookError", "PreStartHookError", "PostStartHookError",
		"ContainerCannotRun":
		a.Cause = name + " cannot be started: " + answer.Sentence(w.Message) + "."
		return a.Do("check command, args, workingDir, securityContext and devices of the container")
	case "PodInitializing":
		if what == "init container" {
			return r.creating(ctx, p, a, events) // the first one has this reason while volumes and sandbox are made
		}
		a.State, a.Cause = answer.Waiting, name+" waits for the init containers of the Pod."
		return a
	}
	return r.creating(ctx, p, a, events)
}

// configError explains a container that the node cannot make as it is described.
func configError(a *answer.Answer, name, message string) *answer.Answer {
	text := answer.Sentence(message) + "."
	switch {
	case strings.Contains(message, "non-numeric user"):
		a.Cause = name + " must not run as root (runAsNonRoot), and its image has a user without a number, who may be root: " + text
		return a.Do("set securityContext.runAsUser to the number of that user")
	case strings.Contains(message, "runAsNonRoot") || strings.Contains(message, "non-root policy"):
		a.Cause = name + " would run as root, which its runAsNonRoot forbids: " + text
		return a.Do("set securityContext.runAsUser to another number than 0, use an image with such a user, or leave runAsNonRoot out")
	case strings.Contains(message, "not found") || strings.Contains(message, "couldn't find"):
		a.Cause = name + " cannot be made because something that it names is missing: " + text
		return a.Do("create what is missing; the node tries again by itself")
	}
	a.Cause = name + " cannot be made as it is described: " + text
	return a.Do("correct what the message names; the node tries again by itself")
}

// statusField returns the path of the status of a container.
func statusField(p *corev1.Pod, name string) string {
	if slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
		return "status.initContainerStatuses[" + name + "]"
	}
	return "status.containerStatuses[" + name + "]"
}

// image explains a container whose image cannot be pulled.
func (r *Explainer) image(ctx context.Context, p *corev1.Pod, c *corev1.ContainerStatus, w *corev1.ContainerStateWaiting, a *answer.Answer,
	events []lookup.Event) *answer.Answer {
	message := w.Message
	// The back-off hides the reason; the last failure has it.
	for k := range events {
		if e := &events[k]; e.Reason == "Failed" && e.IsAbout(c.Name) && strings.HasPrefix(e.Message, "Failed to pull image") {
			message = e.Message
			a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
			break
		}
	}
	image := c.Image
	for _, s := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if s.Name == c.Name {
			image = s.Image
			a.Because(a.Object, "spec.containers["+c.Name+"].image", image, time.Time{})
		}
	}
	failure := messages.Pull(message, image)
	switch {
	case w.Reason == "InvalidImageName":
		a.Cause = "The image name " + image + " is not valid."
		a.Do("correct the image of container %s", c.Name)
	case w.Reason == "ErrImageNeverPull":
		a.Cause = "The image " + image + " is not on node " + p.Spec.NodeName + ", and the pull policy of container " + c.Name +
			" is Never."
		a.Do("proa images load, or another imagePullPolicy")
	case failure == messages.Unauthorized:
		a.Cause = "The registry does not let node " + p.Spec.NodeName + " pull the image " + image +
			": it wants credentials, or there is no such repository."
		for _, s := range p.Spec.ImagePullSecrets {
			if _, missing := lookup.Get[corev1.Secret](ctx, r.Reader, gr.Secrets, p.Namespace, s.Name); missing {
				a.Cause += " The Secret " + s.Name + " that imagePullSecrets names does not exist."
				a.Because(a.Object, "spec.imagePullSecrets", s.Name, time.Time{})
			}
		}
		if len(p.Spec.ImagePullSecrets) == 0 {
			a.Because(a.Object, "spec.imagePullSecrets", "none", time.Time{})
		}
		a.Do("check the name; for a private registry create a Secret of type kubernetes.io/dockerconfigjson and name it in imagePullSecrets")
	case failure == messages.NoSuchImage:
		a.Cause = "The image " + image + " does not exist in its registry."
		a.Do("check name and tag of the image")
	case failure == messages.Unreachable:
		a.Cause = "Node " + p.Spec.NodeName + " cannot reach the registry of image " + image + "."
		a.Do("check name resolution, proxies and the route from the node; a mirror can be configured on the node")
	case failure == messages.Untrusted:
		a.Cause = "Node " + p.Spec.NodeName + " does not trust the certificate of the registry of image " + image + "."
		a.Do("give the node the certificate authority of the registry")
	case failure == messages.NoSpace:
		a.Cause = "Node " + p.Spec.NodeName + " has no room for the image " + image + "."
		a.Do("free disk space on the node")
	default:
		a.Cause = "The image " + image + " cannot be pulled: " + answer.Sentence(message) + "."
	}
	return a
}

// crashed adds how a container ended, and whether the node ended it.
func (r *Explainer) crashed(p *corev1.Pod, c *corev1.ContainerStatus, end *corev1.ContainerStateTerminated, a *answer.Answer,
	events []lookup.Event) *answer.Answer {
	field, previous := ".lastState.terminated", " --previous"
	if end == c.State.Terminated {
		field, previous = ".state.terminated", ""
	}
	a.Because(a.Object, statusField(p, c.Name)+field, Terminated(end), end.FinishedAt.Time)
	a.Because(a.Object, statusField(p, c.Name)+".restartCount", fmt.Sprint(c.RestartCount), time.Time{})
	logs := fmt.Sprintf("kubectl logs %s%s -c %s%s", p.Name, answer.InNamespace(p.Namespace), c.Name, previous)
	switch {
	case end.Reason == "OOMKilled":
		limit := ""
		for _, s := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if q, ok := s.Resources.Limits[corev1.ResourceMemory]; ok && s.Name == c.Name {
				limit = q.String()
				a.Because(a.Object, "spec.containers["+c.Name+"].resources.limits.memory", q.String(), time.Time{})
			}
		}
		a.Cause = "The container " + c.Name + " is killed because it uses more than its memory limit of " + limit + "."
		if limit == "" {
			a.Cause = "The container " + c.Name + " is killed because memory ran out; it has no limit of its own, so it was the limit of the Pod or the memory of the node."
			return a.Because(a.Object, "spec.containers["+c.Name+"].resources.limits.memory", "none", time.Time{}).
				Do("give the container a request and a limit, so that it is placed where there is enough memory").Do("%s", logs)
		}
		return a.Do("raise the limit, or make the program use less memory").Do("%s", logs)
	case end.ExitCode == 127 || end.ExitCode == 126:
		a.Do("check command and args: the program was not found or may not be executed")
	default:
		if stop := stopByProbe(events, p, c.Name, end); stop.isKnown {
			e := stop.event
			a.Cause = "The node restarts the container " + c.Name + " again and again because its probe fails: " + answer.Sentence(e.Message) + "."
			a.Because(a.Object, "event "+e.Reason, e.Message, e.Time).Do(probeAdvice)
		} else {
			r.addStop(p, c, end, a, events)
		}
	}
	return a.Do("%s", logs)
}

// Ended says in words how a container ended.
func Ended(name string, end *corev1.ContainerStateTerminated) string {
	switch {
	case end.Reason == "OOMKilled":
		return "container " + name + " was killed because memory ran out (OOMKilled)"
	case end.Signal != 0:
		return fmt.Sprintf("container %s was ended by signal %d", name, end.Signal)
	case end.ExitCode > 128 && end.ExitCode < 160:
		return fmt.Sprintf("container %s ended with exit code %d (signal %d)", name, end.ExitCode, end.ExitCode-128)
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		return "container " + name + " could not be started: " + answer.Sentence(end.Message)
	}
	text := fmt.Sprintf("container %s ended with exit code %d", name, end.ExitCode)
	if end.Message != "" {
		text += ": " + answer.Sentence(end.Message)
	}
	return text
}

// Terminated returns the end of a container in one line.
func Terminated(end *corev1.ContainerStateTerminated) string {
	return strings.TrimSpace(fmt.Sprintf("exit code %d %s %s", end.ExitCode, end.Reason, end.Message))
}

// NoNetwork says that a Pod cannot get its network on a node, and why.
func NoNetwork(a *answer.Answer, message, node string) {
	a.Cause = "The network of the Pod cannot be made (CNI): " + answer.Sentence(message) + "."
	a.Do("proa status and proa logs %s show how the network of the node does", node)
}

// creating explains a Pod whose sandbox or volumes are not there yet.
func (r *Explainer) creating(ctx context.Context, p *corev1.Pod, a *answer.Answer, events []lookup.Event) *answer.Answer {
	a.At(hop.Node)
	pulling := lookup.Latest(events, "Pulling", "Pulled")
	if e := lookup.Latest(events, "FailedCreatePodSandBox", "NetworkNotReady", "FailedMount", "FailedAttachVolume", "FailedMapVolume",
		"FailedPrepareDynamicResources", "FailedCreatePodContainer", "FailedToRetrieveImagePullSecret"); e != nil &&
		(pulling == nil || pulling.Reason != "Pulling" || !pulling.Time.After(e.Time)) {
		a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
		switch e.Reason {
		case "FailedCreatePodSandBox", "NetworkNotReady":
			NoNetwork(a, e.Message, p.Spec.NodeName)
			if low := strings.ToLower(e.Message); !strings.Contains(low, "cni") && !strings.Contains(low, "network") {
				a.Cause = "The sandbox of the Pod cannot be made: " + answer.Sentence(e.Message) + "."
			}
			return a
		case "FailedAttachVolume":
			a.Cause = "A volume of the Pod cannot be attached to node " + p.Spec.NodeName + ": " + answer.Sentence(e.Message) + "."
			return a.Do("a volume that only one node may have must first be detached from the other: look for Pods that still use it")
		case "FailedMount", "FailedMapVolume":
			a.Cause = "A volume of the Pod cannot be mounted: " + answer.Sentence(e.Message) + "."
			return r.missingSources(ctx, p, a)
		}
		a.Cause = "The Pod cannot be prepared on node " + p.Spec.NodeName + ": " + answer.Sentence(e.Message) + "."
		return a
	}
	if r.missingSources(ctx, p, a); a.Cause != "" {
		return a
	}
	if e := pulling; e != nil && e.Reason == "Pulling" {
		a.State, a.Cause = answer.Waiting, "Node "+p.Spec.NodeName+" has been pulling an image for "+answer.Ago(r.Now, e.Time)+
			": "+answer.Sentence(e.Message)+"."
		return a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
	}
	since := time.Time{}
	if bound := lookup.PodCondition(p, corev1.PodScheduled); bound != nil {
		since = bound.LastTransitionTime.Time
	}
	a.State = answer.Unknown
	if r.Now.Sub(since) < 20*time.Second {
		a.State = answer.Waiting
	}
	a.Cause = "Node " + p.Spec.NodeName + " is preparing the Pod (volumes, sandbox, network, image) since " + answer.Ago(r.Now, since) + "."
	return a.Because(a.Object, "status.conditions[PodScheduled]", "True", since)
}

// missingSources looks for ConfigMaps, Secrets and claims that volumes name and that do not exist.
func (r *Explainer) missingSources(ctx context.Context, p *corev1.Pod, a *answer.Answer) *answer.Answer {
	say := func(kindName, name, field string) {
		a.Cause = "The Pod cannot start because the " + kindName + " " + name + " does not exist."
		a.Because(a.Object, field, name, time.Time{}).Do("create the %s %s in namespace %s; the node tries again by itself", kindName, name,
			p.Namespace)
	}
	optional := func(b *bool) bool { return b != nil && *b }
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		field := "spec.volumes[" + v.Name + "]"
		switch {
		case v.ConfigMap != nil && !optional(v.ConfigMap.Optional):
			if _, missing := lookup.Get[corev1.ConfigMap](ctx, r.Reader, gr.ConfigMaps, p.Namespace, v.ConfigMap.Name); missing {
				say("ConfigMap", v.ConfigMap.Name, field+".configMap.name")
			}
		case v.Secret != nil && !optional(v.Secret.Optional):
			if _, missing := lookup.Get[corev1.Secret](ctx, r.Reader, gr.Secrets, p.Namespace, v.Secret.SecretName); missing {
				say("Secret", v.Secret.SecretName, field+".secret.secretName")
			}
		case v.PersistentVolumeClaim != nil:
			if _, missing := lookup.Get[corev1.PersistentVolumeClaim](ctx, r.Reader, gr.PersistentVolumeClaims, p.Namespace,
				v.PersistentVolumeClaim.ClaimName); missing {
				say("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, field+".persistentVolumeClaim.claimName")
			}
		}
	}
	return a
}

// unready explains a container that runs and is not ready.
func (r *Explainer) unready(p *corev1.Pod, c *corev1.ContainerStatus, a *answer.Answer, events []lookup.Event) *answer.Answer {
	a.At(hop.Node).Because(a.Object, "status.containerStatuses["+c.Name+"].ready", "false", time.Time{})
	probe := "readiness"
	var spec *corev1.Probe
	for i := range p.Spec.Containers {
		if s := &p.Spec.Containers[i]; s.Name == c.Name {
			spec = s.ReadinessProbe
			if c.Started != nil && !*c.Started && s.StartupProbe != nil {
				probe, spec = "startup", s.StartupProbe
			}
		}
	}
	for i := range events {
		if e := &events[i]; e.Reason == "Unhealthy" && e.IsAbout(c.Name) && strings.HasPrefix(strings.ToLower(e.Message), probe) {
			a.Cause = "The container " + c.Name + " runs, but its " + probe + " probe fails, so that it gets no traffic: " +
				answer.Sentence(e.Message) + "."
			a.Because(a.Object, "event "+e.Reason, e.Message, e.Time)
			r.AddRestart(p, c, a, events)
			return a.Do("kubectl logs %s%s -c %s", p.Name, answer.InNamespace(p.Namespace), c.Name).
				Do("check that the program listens on the port and path of the probe, on all addresses and not only on localhost")
		}
	}
	started := c.State.Running.StartedAt.Time
	if spec != nil {
		a.State = answer.Waiting
		a.Cause = fmt.Sprintf("The container %s runs since %s and its %s probe, made every %s, has not succeeded yet.", c.Name, answer.Ago(r.Now, started), probe,
			answer.Plural(int(max(1, spec.PeriodSeconds)), "second"))
		r.AddRestart(p, c, a, events)
		return a.Because(a.Object, "spec.containers["+c.Name+"]."+probe+"Probe.initialDelaySeconds", fmt.Sprint(spec.InitialDelaySeconds),
			started)
	}
	a.State, a.Cause = answer.Waiting, "The container "+c.Name+" runs since "+answer.Ago(r.Now, started)+"; its node has not reported it as ready yet."
	r.AddRestart(p, c, a, events)
	return a
}
