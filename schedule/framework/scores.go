package framework

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// NormalizeScores scales scores to 0..MaxScore, so that the largest becomes MaxScore. With reverse the largest becomes
// 0.
func NormalizeScores(scores []int64, reverse bool) {
	var largest int64
	for _, v := range scores {
		largest = max(largest, v)
	}
	for i, v := range scores {
		if largest > 0 {
			v = MaxScore * v / largest
		}
		if reverse {
			v = MaxScore - v
		}
		scores[i] = v
	}
}

// Interpolate returns the score at utilization x of a shape, with straight lines between its points.
func Interpolate(shape []ShapePoint, x int64) int64 {
	for i, p := range shape {
		if x > p.Utilization {
			continue
		}
		if i == 0 {
			return p.Score
		}
		q := shape[i-1]
		return q.Score + (p.Score-q.Score)*(x-q.Utilization)/(p.Utilization-q.Utilization)
	}
	return shape[len(shape)-1].Score
}

// ShapePoint is a point of a scoring function: the score, 0 to MaxScore, at a utilization, 0 to 100.
type ShapePoint struct{ Utilization, Score int64 }

// MaxShapeScore is the best score of a shape in the configuration file.
const MaxShapeScore = 10

// CheckShape validates a shape of the configuration file: its points must be sorted by utilization, and all values in
// range.
func CheckShape(shape []configv1.UtilizationShapePoint, at *field.Path) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(at, "at least one point must be specified")}
	}
	for i := 1; i < len(shape); i++ {
		if shape[i-1].Utilization >= shape[i].Utilization {
			errs = append(errs, field.Invalid(at.Index(i).Child("utilization"), shape[i].Utilization,
				"values must be sorted in increasing order"))
			break
		}
	}
	for i, p := range shape {
		if p.Utilization < 0 || p.Utilization > 100 {
			errs = append(errs, field.Invalid(at.Index(i).Child("utilization"), p.Utilization, "not in valid range [0, 100]"))
		}
		if p.Score < 0 || p.Score > MaxShapeScore {
			errs = append(errs, field.Invalid(at.Index(i).Child("score"), p.Score,
				fmt.Sprintf("not in valid range [0, %d]", MaxShapeScore)))
		}
	}
	return errs
}
