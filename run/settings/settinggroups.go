package settings

import (
	"slices"
	"strings"
)

// SettingGroup is a group of settings under one heading of help and of the sample config file.
type SettingGroup struct {
	Title    string
	Settings []Setting
}

// Group sorts settings into groups, in the order of help. Groups without settings are left out.
func Group(settings []Setting) (out []SettingGroup) {
	for _, g := range settingGroups() {
		in := SettingGroup{Title: g.title}
		for name := range strings.FieldsSeq(g.names) {
			if at := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name }); at >= 0 {
				in.Settings = append(in.Settings, settings[at])
			}
		}
		if len(in.Settings) > 0 {
			out = append(out, in)
		}
	}
	return out
}

type settingGroup struct{ title, names string }

// settingGroups returns the names of the settings under each heading.
func settingGroups() []settingGroup {
	return []settingGroup{
		{"Cluster", "data-dir name listen tls-san nodes simulate node-address-ranges foreign-kubelets feature-gates log-level"},
		{"Access: authentication", `anonymous-auth token-auth-file service-account-issuer authentication-config
			oidc-issuer-url oidc-client-id oidc-username-claim oidc-username-prefix oidc-groups-claim oidc-groups-prefix oidc-required-claim oidc-signing-algs oidc-ca-file
			authentication-token-webhook-config-file authentication-token-webhook-version authentication-token-webhook-cache-ttl`},
		{"Access: authorization", `authorization-mode authorization-config authorization-webhook-config-file authorization-webhook-version
			authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl`},
		{"Access: admission", "enable-admission-plugins disable-admission-plugins admission-control-config-file"},
		{"Audit", `audit-log-path audit-policy-file audit-webhook-config-file audit-webhook-mode audit-webhook-initial-backoff
			audit-webhook-batch-buffer-size audit-webhook-batch-max-size audit-webhook-batch-max-wait`},
		{"Tracing", "trace-records trace-bodies otlp-endpoint otlp-ca-file otlp-headers-file otlp-compression"},
		{"Storage", "etcd-servers change-cluster etcd-cafile etcd-certfile etcd-keyfile encryption-provider-config"},
		{"Requests and shutdown", "max-requests-inflight max-mutating-requests-inflight max-request-memory max-namespace-bytes http2 shutdown-timeout shutdown-delay-duration"},
		{"Controllers and scheduler", "controllers scheduler-config"},
		{"Network", `service-cidr cluster-cidr allocate-node-cidrs cluster-domain cluster-dns stub-domain resolv-conf service-proxy proxy-healthz proxy-status
			external-ip-ranges load-balancer load-balancer-ranges ingress-class ingress-http-port ingress-https-port gateway-class cni-conf-dir cni-bin-dir`},
		{"Node", `node node-ip node-port node-labels register-with-taints provider-id cloud-provider max-pods pod-max-pids pod-manifest-path manifest-url
			allowed-unsafe-sysctls seccomp-default bin-dir container-runtime-endpoint cgroup-driver
			shutdown-grace-period shutdown-grace-period-critical-pods shutdown-grace-period-by-pod-priority`},
		{"Node: images and logs", `registry-dir max-parallel-image-pulls image-gc-high-threshold image-gc-low-threshold image-credential-provider-config
			image-credential-provider-bin-dir image-pull-credentials-verification-policy preloaded-images-verification-allowlist container-log-max-size container-log-max-files`},
		{"Node: resources", `system-reserved kube-reserved agent-memory reserved-cpus reserved-memory eviction-hard eviction-soft eviction-soft-grace-period memory-swap-behavior
			cpu-manager-policy cpu-manager-policy-options memory-manager-policy topology-manager-policy topology-manager-scope`},
	}
}
