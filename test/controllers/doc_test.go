// Package controllers has the tests of controllers that need a whole control plane: the scripts in control/NAME/testdata, and what scripts
// cannot say. They are one package, and so one test binary, because it takes longer to link a control plane than to play the scripts of a controller.
// Tests of the decisions of a controller, which need no control plane, are beside it.
package controllers
