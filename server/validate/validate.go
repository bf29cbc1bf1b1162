// Package validate is hop 6 of 12: the built-in admission plugins that see an object as it will be stored and may only
// reject it. Each is one file: a pure decision on values, and a few lines that read what it depends on. A write that
// does not concern a plugin costs it one type assertion.
//
// The plugins have upstream's names and are in its order, except for RestrictedEndpoints, which upstream does not have.
package validate

import (
	"fmt"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/placement"
)

// Plugins returns the plugins of hop 6, in order. config maps the name of a plugin to the text of its configuration.
func Plugins(config map[string][]byte) ([]kind.Plugin, error) {
	limited, err := readQuota(config["ResourceQuota"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of ResourceQuota: %w", err)
	}
	standards, err := readPodSecurity(config["PodSecurity"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodSecurity: %w", err)
	}
	selectors, err := placement.ReadSelectors(config["PodNodeSelector"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodNodeSelector: %w", err)
	}
	tolerations, err := placement.ReadTolerations(config["PodTolerationRestriction"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of PodTolerationRestriction: %w", err)
	}
	events, err := readEventLimits(config["EventRateLimit"])
	if err != nil {
		return nil, fmt.Errorf("the configuration of EventRateLimit: %w", err)
	}
	return []kind.Plugin{
		{Name: "NamespaceExists", DisabledByDefault: true, Admit: namespaceExists},
		{Name: "LimitPodHardAntiAffinityTopology", DisabledByDefault: true, Admit: limitAntiAffinity},
		{Name: "LimitRanger", Admit: limitRanger},
		{Name: "ServiceAccount", Admit: serviceAccount},
		{Name: "AlwaysPullImages", DisabledByDefault: true, Admit: checkPullPolicy},
		{Name: "PodSecurity", Admit: podSecurity(standards)},
		{Name: "PodNodeSelector", DisabledByDefault: true, Admit: podNodeSelector(selectors)},
		{Name: "Priority", Admit: oneDefaultPriority},
		{Name: "PodTolerationRestriction", DisabledByDefault: true, Admit: podTolerations(tolerations)},
		{Name: "EventRateLimit", DisabledByDefault: true, Admit: eventRate(events)},
		{Name: "OwnerReferencesPermissionEnforcement", DisabledByDefault: true, Admit: ownerPermissions},
		{Name: "PersistentVolumeClaimResize", Admit: claimResize},
		{Name: "RuntimeClass", Admit: runtimeClass},
		{Name: "CertificateApproval", Admit: approval},
		{Name: "CertificateSigning", Admit: signing},
		{Name: "ClusterTrustBundleAttest", Admit: attest},
		{Name: "CertificateSubjectRestriction", Admit: subject},
		{Name: "DenyServiceExternalIPs", DisabledByDefault: true, Admit: noExternalIPs},
		{Name: "RestrictedEndpoints", Admit: restrictedEndpoints},
		{Name: "NodeDeclaredFeatureValidator", Admit: nodeFeatures},
		{Name: "PodResizeValidator", Admit: podResize},
		{Name: "ResourceQuota", Admit: resourceQuota(limited)},
		{Name: "AlwaysDeny", DisabledByDefault: true, Admit: denyAll},
	}, nil
}
