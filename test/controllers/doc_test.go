// Package controllers has the tests of controllers that need a whole control plane: they run the scripts in
// control/NAME/testdata, and test what scripts cannot express. They are one package, and so one test binary, because linking a
// control plane takes longer than running the scripts of a controller. Tests of a controller's decisions are beside it.
package controllers
