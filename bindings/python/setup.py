"""The wheel holds the shared library, so it is for one kind of machine and any Python 3."""

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=WithLibrary, cmdclass={"bdist_wheel": Wheel})
