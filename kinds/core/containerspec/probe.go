package containerspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// validateLiveness checks a liveness or startup probe.
func validateLiveness(p *corev1.Probe, grace *int64, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateProbe(p, grace, at)
	if p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

func validateReadiness(p *corev1.Probe, grace *int64, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateProbe(p, grace, at)
	if p.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds,
			"must not be set for readinessProbes"))
	}
	return errs
}

func validateProbe(p *corev1.Probe, grace *int64, at *field.Path) field.ErrorList {
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, grace, at)
	errs = append(errs, check.NonNegative(int64(p.InitialDelaySeconds), at.Child("initialDelaySeconds"))...)
	errs = append(errs, check.NonNegative(int64(p.TimeoutSeconds), at.Child("timeoutSeconds"))...)
	errs = append(errs, check.NonNegative(int64(p.PeriodSeconds), at.Child("periodSeconds"))...)
	errs = append(errs, check.NonNegative(int64(p.SuccessThreshold), at.Child("successThreshold"))...)
	errs = append(errs, check.NonNegative(int64(p.FailureThreshold), at.Child("failureThreshold"))...)
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *s, "must be greater than 0"))
	}
	return errs
}

// handler is the union of the actions of probes and lifecycle hooks.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func validateHandler(h handler, grace *int64, at *field.Path) field.ErrorList {
	c := &check.Union{Path: at, TooMany: "may not specify more than 1 handler type"}
	check.UnionMember(c, h.exec, "exec", func(a *corev1.ExecAction, at *field.Path) field.ErrorList {
		if len(a.Command) == 0 {
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}
		return nil
	})
	check.UnionMember(c, h.http, "httpGet", validateHTTPGet)
	check.UnionMember(c, h.tcp, "tcpSocket", func(a *corev1.TCPSocketAction, at *field.Path) field.ErrorList {
		return validatePort(a.Port, at.Child("port"))
	})
	check.UnionMember(c, h.grpc, "grpc", func(a *corev1.GRPCAction, at *field.Path) field.ErrorList {
		return append(validatePort(intstr.FromInt32(a.Port), at.Child("port")),
			check.OneOfIfSet(a.Mode, at.Child("mode"), corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)...)
	})
	check.UnionMember(c, h.sleep, "sleep", func(a *corev1.SleepAction, at *field.Path) field.ErrorList {
		if grace != nil && (a.Seconds < 0 || a.Seconds > *grace) {
			return field.ErrorList{field.Invalid(at, a.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))}
		}
		return nil
	})
	if c.Found == 0 {
		c.ErrorList = append(c.ErrorList, field.Required(at, "must specify a handler type"))
	}
	return c.ErrorList
}

func validateHTTPGet(a *corev1.HTTPGetAction, at *field.Path) field.ErrorList {
	errs := check.Required(a.Path, at.Child("path"))
	errs = append(errs, validatePort(a.Port, at.Child("port"))...)
	errs = append(errs, check.OneOf(a.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, h := range a.HTTPHeaders {
		errs = append(errs, check.Messages(h.Name, at.Child("httpHeaders"), validation.IsHTTPHeaderName(h.Name))...)
	}
	if a.Protocol == nil {
		return errs
	}
	bad := check.OneOf(*a.Protocol, at.Child("protocol"), corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)
	switch {
	case len(bad) > 0:
		errs = append(errs, bad...)
	case *a.Protocol == corev1.HTTPProtocolHTTP2 && a.Scheme != corev1.URISchemeHTTP:
		errs = append(errs, field.Invalid(at.Child("protocol"), *a.Protocol, "is only supported with HTTP (H2C)"))
	case *a.Protocol == corev1.HTTPProtocolHTTP2 && a.Host != "":
		errs = append(errs, field.Invalid(at.Child("host"), a.Host, "must be empty when `protocol` is \"HTTP2\""))
	}
	return errs
}

// validatePort checks a port that is given by number or by name.
func validatePort(p intstr.IntOrString, at *field.Path) field.ErrorList {
	switch p.Type {
	case intstr.Int:
		return check.Messages(p.IntValue(), at, validation.IsValidPortNum(p.IntValue()))
	case intstr.String:
		return check.Messages(p.StrVal, at, validation.IsValidPortName(p.StrVal))
	}
	return field.ErrorList{field.InternalError(at, fmt.Errorf("unknown type: %v", p.Type))}
}

func validateLifecycle(l *corev1.Lifecycle, grace *int64, at *field.Path, os *corev1.PodOS) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	if h := l.PostStart; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, grace, at.Child("postStart"))...)
	}
	if h := l.PreStop; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, grace, at.Child("preStop"))...)
	}
	if l.StopSignal == nil {
		return errs
	}
	stop := at.Child("stopSignal")
	switch {
	case os == nil:
		errs = append(errs, field.Forbidden(stop, "may not be set for containers with empty `spec.os.name`"))
	case os.Name == corev1.Windows:
		errs = append(errs, check.OneOf(*l.StopSignal, stop, corev1.SIGKILL, corev1.SIGTERM)...)
	case os.Name == corev1.Linux:
		errs = append(errs, check.OneOf(*l.StopSignal, stop, linuxSignals()...)...)
	}
	return errs
}

// linuxSignals returns the signals that may stop a container, sorted by name.
func linuxSignals() []corev1.Signal {
	signals := []corev1.Signal{"SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT",
		"SIGIO",
		"SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM",
		"SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
		"SIGRTMIN", "SIGRTMAX"}
	for i := 1; i <= 15; i++ {
		signals = append(signals, corev1.Signal(fmt.Sprintf("SIGRTMIN+%d", i)))
	}
	for i := 1; i <= 14; i++ {
		signals = append(signals, corev1.Signal(fmt.Sprintf("SIGRTMAX-%d", i)))
	}
	slices.Sort(signals)
	return signals
}
