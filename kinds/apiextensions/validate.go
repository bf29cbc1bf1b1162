package apiextensions

import "k8s.io/apimachinery/pkg/util/validation/field"

func validateCRD(c, old *crd) field.ErrorList { return nil }

func validateCRDStatus(c, old *crd) field.ErrorList { return nil }

func warnCRD(c, old *crd) []string { return nil }
