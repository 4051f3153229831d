package tokens

// Values for TestBuildGolden.
const (
	goldenStart   = "correct mostly loaded could license three for because between lay finished quick"
	goldenSeed0   = "570f6975d494ae88b9f7a6da2e88764e87b5dc128a93716e392714a731358eff"
	goldenSeed1   = "e733fdef51ad394f8de7bac2908e83134b8c811755b5d13108868c2c59d03073"
	goldenSeedMax = "02c820c4e3b5ff82620d71f9a5de64e0479de216a9c1b3d0abc361e31d85ea6e"
	goldenUnits   = "bab16c829f581444b2e311142eb8e9a4f180c198708488e1d5ae315ea5113fc8"
	goldenIDs     = "9759fca6c867ecb5ba3d36680341edfc9f8043cb070a69c05fa491bde72a3258"
)

var goldenFirstIDs = []int{17605, 123595, 12398, 77391}
